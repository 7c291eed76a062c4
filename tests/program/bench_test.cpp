// Cells that go wrong, and cells that go right: the rows they leave, and that the sweep goes on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "program/bench/contender.h"
#include "run_program.h"
#include "verification/attention/case.h"
#include "verification/linear/operation.h"
#include "verification/operation.h"
#include "verification/problem_line.h"

namespace fovea::tests {
namespace {

using program::Row;

const Row& only(const std::vector<Row>& rows) {
  EXPECT_EQ(rows.size(), 1u);
  return rows.at(0);
}

TEST(Bench, ARightCellHasATimeAndAllFigures) {
  const std::vector<Row> rows = bench("lq=32 d=8 pass=fwd,bwd,e2e", "reference", 0);
  ASSERT_EQ(rows.size(), 3u);
  for (const Row& row : rows) {
    EXPECT_EQ(row.status, "ok") << row.reason;
    EXPECT_EQ(row.impl, "reference");
    ASSERT_TRUE(row.time_s.has_value());
    EXPECT_GE(row.time_s->n, 3);
    EXPECT_EQ(static_cast<std::int64_t>(row.time_s->samples.size()), row.time_s->n);
    EXPECT_GE(row.time_s->median, row.time_s->min);
    EXPECT_EQ(row.saved_bytes, 0);
    EXPECT_EQ(row.memory_before_backward_bytes, 4 * 32 * 8 * 4 + 32 * 4);  // q, k, v, out and lse
    EXPECT_EQ(row.timer, "steady_clock");
    EXPECT_EQ(row.error.contains("dq"), row.problem.find("pass=fwd") == std::string::npos);
  }
  EXPECT_DOUBLE_EQ(rows[2].flops, rows[0].flops + rows[1].flops);
}

TEST(Bench, EveryGradientOfALayerIsCheckedBeforeItsBackwardIsTimed) {
  const auto rows = bench("op=mha pass=bwd hq=2 lq=16 d=8 bias=yes", "naive,flash", 0);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].impl, "naive");
  for (const auto& row : rows) {
    EXPECT_EQ(row.status, "ok") << row.reason;
    EXPECT_EQ(row.error.size(), 10u) << "y, dx, and a weight and a bias of four projections";
  }
}

TEST(Bench, ALayerTakesItsProductsFromALibraryThatIsNamed) {
  const std::string name = "cpu.bare_sgemm";
  const Row row = only(bench("op=gqa pass=e2e hq=4 hkv=2 lq=64 d=32", name, 0));
  EXPECT_EQ(row.status, "ok") << row.reason;
  EXPECT_EQ(row.impl, name);
  const Row biased = only(bench("op=gqa hq=4 hkv=2 lq=64 d=32 bias=yes", name, 0));
  EXPECT_EQ(biased.status, "unsupported");
  EXPECT_EQ(biased.reason.find("q by cpu.bare_sgemm: multiplies only"), 0u) << biased.reason;
  EXPECT_EQ(biased.reason.find("cpu.scalar"), std::string::npos) << "attention is not what it lacks: " << biased.reason;
}

TEST(Bench, AnImplementationThatAnOperationLacksIsRefusedThere) {
  verification::register_operation(verification::linear_operation());
  const verification::Case linear = verification::parse_case("op=linear m=4 k=4"),
                           attention = verification::parse_case("lq=4 d=4");
  const auto contenders =
      program::contenders_of({"cpu.own"}, {}, "python3", DeviceKind::cpu, {linear.operation, attention.operation});
  EXPECT_EQ(program::plan_cell(contenders[0], linear).refusal, "");
  EXPECT_EQ(program::plan_cell(contenders[0], attention).refusal, "op=attention has no implementation of this name");
}

TEST(Bench, FlashIsRecordedUnderItsResolvedName) {
  const Row row = only(bench("lq=32 d=8", "flash", 0));
  EXPECT_NE(row.impl, "flash");
}

TEST(Bench, GradientsWithoutElementsAreNotMissing) {
  for (const char* line : {"b=0 lq=4 d=8 pass=bwd,e2e", "hq=0 lq=4 d=8 pass=bwd,e2e", "lq=0 d=8 pass=bwd,e2e"}) {
    for (const Row& row : bench(line, "reference", 0)) EXPECT_EQ(row.status, "ok") << row.problem << row.reason;
  }
}

struct BadKernel {
  const char* symbol;
  const char* status;
  const char* reason;
  int code;
};

class BadKernels : public testing::TestWithParam<BadKernel> {};

// Every case runs beside a good kernel, whose row must come out right.
TEST_P(BadKernels, LeaveARowAndStopNoOtherCell) {
  const BadKernel& bad = GetParam();
  const auto rows = bench("lq=8 d=4", bad_kernel(bad.symbol) + "," + bad_kernel("right"), bad.code, {"--timeout", "1"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].status, bad.status) << rows[0].reason;
  EXPECT_NE(rows[0].reason.find(bad.reason), std::string::npos) << rows[0].reason;
  EXPECT_FALSE(rows[0].time_s.has_value());
  EXPECT_EQ(rows[1].status, "ok") << rows[1].reason;
}

INSTANTIATE_TEST_SUITE_P(Crashes, BadKernels,
                         testing::Values(BadKernel{"crashes", "crashed", "Segmentation fault", 1},
                                         BadKernel{"crashes_when_timed", "crashed", "Segmentation fault", 1},
                                         BadKernel{"writes_to_inputs", "crashed", "Segmentation fault", 1},
                                         BadKernel{"aborts", "crashed", "Aborted", 1},
                                         BadKernel{"exits", "crashed", "code 7: no licence found", 1},
                                         BadKernel{"hangs", "timeout", "no answer within 1 s", 0},
                                         BadKernel{"is_killed", "crashed", "Killed", 1},
                                         BadKernel{"returns_9", "error", "returned 9", 1},
                                         BadKernel{"not_there", "error", "not_there", 1}),
                         [](const auto& test) { return test.param.symbol; });

INSTANTIATE_TEST_SUITE_P(Mismatches, BadKernels,
                         testing::Values(BadKernel{"slightly_wrong", "mismatch", "out", 1},
                                         BadKernel{"not_a_number_when_timed", "mismatch", "after the last sample: out",
                                                   1},
                                         BadKernel{"idle_when_timed", "mismatch", "out was not written", 1},
                                         BadKernel{"writes_behind_out", "mismatch", "wrote behind the end of out", 1},
                                         BadKernel{"writes_behind_lse", "mismatch", "wrote behind the end of lse", 1},
                                         BadKernel{"writes_nothing", "mismatch", "out was not written", 1}),
                         [](const auto& test) { return test.param.symbol; });

// Of backward only the gradients are computed again while it is timed.
TEST(Bench, AnswersOfEveryPassAreCheckedAfterTheLastSample) {
  const auto rows =
      bench("lq=8 d=4 pass=fwd,bwd,e2e", bad_kernel("not_a_number_when_timed") + "," + bad_kernel("right"), 1);
  ASSERT_EQ(rows.size(), 6u);
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(rows[i].status, i % 2 == 0 ? "mismatch" : "ok") << rows[i].problem << rows[i].reason;
}

TEST(Bench, BytesBehindAWholePageAreGuardedToo) {
  const Row row = only(bench("lq=64 d=16", bad_kernel("writes_behind_out"), 1));
  EXPECT_EQ(row.status, "mismatch");
  EXPECT_EQ(row.reason, "wrote behind the end of out");
}

TEST(Bench, BytesBehindAGradientAreGuarded) {
  const Row row = only(bench("lq=8 d=4 pass=bwd", bad_kernel("writes_behind_dv"), 1));
  EXPECT_EQ(row.status, "mismatch");
  EXPECT_EQ(row.reason, "wrote behind the end of dv");
}

// The child has the worker's end of the pipe, so the pipe stays open.
TEST(Bench, AKernelThatForksAndCrashesIsCrashedAndItsChildIsEnded) {
  const Folder folder;
  write_text(folder / "lock", "");
  const Ended run = fovea({"bench", "--problem", "lq=8 d=4", "--impl", bad_kernel("forks_and_crashes"), "--timeout",
                           "5", "-o", folder / "run.jsonl"},
                          {.environment = {"FOVEA_TEST_LOCK=" + folder / "lock"}});
  EXPECT_EQ(run.code, 1) << run.err;
  const auto rows = program::load_records(folder / "run.jsonl").rows;
  EXPECT_EQ(only(rows).status, "crashed");
  EXPECT_NE(rows[0].reason.find("Segmentation fault"), std::string::npos) << rows[0].reason;
  const int lock = open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC);
  bool free = false;
  for (int attempt = 0; attempt < 500 && !free; ++attempt) {
    free = flock(lock, LOCK_EX | LOCK_NB) == 0;
    if (!free) usleep(10'000);
  }
  EXPECT_TRUE(free) << "the child lives";
  close(lock);
}

TEST(Bench, AKernelCannotShrinkTheMemoryOfTheTensors) {
  const auto rows = bench("lq=8,64,16 d=4", bad_kernel("truncates") + "," + bad_kernel("right"), 0);
  ASSERT_EQ(rows.size(), 6u);
  for (const Row& row : rows) EXPECT_EQ(row.status, "ok") << row.reason;
}

TEST(Bench, AReplyOfAnotherFormIsThatContendersError) {
  for (const char* kernel : {"answers_wrongly", "answers_wrongly_when_timed"}) {
    const auto rows = bench("lq=1,2,3,4,5,6,7,8 d=4", bad_kernel(kernel) + "," + bad_kernel("right"), 1);
    ASSERT_EQ(rows.size(), 16u);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].status, i % 2 == 0 ? "error" : "ok") << rows[i].problem << rows[i].reason;
      const bool named = rows[i].reason.find("the worker answered `{") != std::string::npos;
      EXPECT_EQ(named, i % 2 == 0) << rows[i].reason;
    }
  }
}

TEST(Bench, AMismatchReportsItsErrorAndPosition) {
  const Row row = only(bench("lq=8 d=4", bad_kernel("slightly_wrong"), 1));
  EXPECT_NE(row.reason.find('7'), std::string::npos) << "the last of 8 rows is wrong: " << row.reason;
  EXPECT_GT(row.error.at("out").ratio_to_plain, 2);
  EXPECT_NEAR(row.error.at("out").max_abs, 1e-3, 1e-4);
  EXPECT_FALSE(row.tflops.has_value());
}

TEST(Bench, AMissingGradientIsAMismatch) {
  const Row row = only(bench("lq=8 d=4 pass=bwd", bad_kernel("forgets_gradients"), 1));
  EXPECT_EQ(row.status, "mismatch");
  EXPECT_NE(row.reason.find("dk was not written"), std::string::npos) << row.reason;
  EXPECT_FALSE(row.time_s.has_value());
}

TEST(Bench, TheWorkerIsRestartedAndTheSweepGoesOn) {
  for (const char* symbol : {"crashes_above_16", "hangs_above_16"}) {
    const auto rows = bench("lq=8,32,16 d=4", bad_kernel(symbol), symbol[0] == 'c' ? 1 : 0, {"--timeout", "1"});
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[0].status, "ok");
    EXPECT_NE(rows[1].status, "ok");
    EXPECT_EQ(rows[2].status, "ok") << rows[2].reason;
  }
}

TEST(Bench, AContenderThatCrashesInEveryCellIsGivenUp) {
  const auto rows = bench("lq=17,18,19,20,21 d=4", bad_kernel("crashes_above_16") + "," + bad_kernel("right"), 1);
  ASSERT_EQ(rows.size(), 10u);
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    EXPECT_EQ(rows[i].status, "crashed");
    EXPECT_EQ(rows[i].reason.find("not run again") != std::string::npos, i >= 6) << rows[i].reason;
    EXPECT_EQ(rows[i + 1].status, "ok") << rows[i + 1].reason;
  }
  for (const auto& row : bench("lq=17,18,8,19,20 d=4", bad_kernel("crashes_above_16"), 1))
    EXPECT_EQ(row.reason.find("not run again"), std::string::npos) << "three crashes, but not in a row";
}

TEST(Bench, OutOfMemoryEndsTheCellAndNotTheSweep) {
  const auto rows = bench("lq=8,32,16 d=4", bad_kernel("runs_out_of_memory"), 0, {"--memory-limit", "300M"});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].status, "oom");
  EXPECT_FALSE(rows[1].time_s.has_value());
  EXPECT_EQ(rows[2].status, "ok") << "the known answer after it: " << rows[2].reason;
}

TEST(Bench, ACrashWithoutMemorySaysSo) {
  const auto rows = bench("lq=32 d=4", bad_kernel("writes_to_no_memory"), 1, {"--memory-limit", "300M"});
  EXPECT_EQ(rows.at(0).status, "crashed");
  EXPECT_NE(rows[0].reason.find("less than 128 MiB of memory were left"), std::string::npos) << rows[0].reason;
  for (const auto& row : bench("lq=32 d=4", bad_kernel("crashes_above_16"), 1, {"--memory-limit", "1G"}))
    EXPECT_EQ(row.reason.find("memory"), std::string::npos) << row.reason;
}

TEST(Bench, AnEstimateBeyondTheMemoryLimitIsOom) {
  const auto rows = bench("lq=64k,8 d=64 b=64 hq=16", "reference", 0, {"--memory-limit", "64M"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].status, "oom");
  EXPECT_NE(rows[0].reason.find("64 MiB may be used"), std::string::npos) << rows[0].reason;
  EXPECT_EQ(rows[1].status, "ok");
}

TEST(Bench, ATimeUnderTheFloorIsFlaggedAndNotRanked) {
  const Ended run = fovea({"bench", "--problem", "lq=256 d=64", "--impl", bad_kernel("cheats") + ",reference",
                           "--repeat-for", "0.01", "--threads", "1", "--json"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("\"impossible\""), std::string::npos) << run.out;
  const Ended table = fovea({"bench", "--problem", "lq=256 d=64", "--impl", bad_kernel("cheats") + ",reference",
                             "--repeat-for", "0.01", "--threads", "1"});
  const std::size_t mark = table.out.find(" *");
  ASSERT_NE(mark, std::string::npos);
  EXPECT_LT(table.out.find("impossible"), mark) << "the impossible time is marked best:\n" << table.out;
}

TEST(Bench, FilesOfDifferentConditionsAreComparedOnlyIfForced) {
  const Folder folder;
  for (const char* threads : {"1", "2"}) {
    const Ended run = fovea({"bench", "--problem", "lq=8 d=4", "--impl", "reference", "--repeat-for", "0.01",
                             "--threads", threads, "-o", folder / threads});
    ASSERT_EQ(run.code, 0) << run.err;
  }
  EXPECT_EQ(fovea({"compare", folder / "1", folder / "1"}).code, 0);
  const Ended refused = fovea({"compare", folder / "1", folder / "2"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("threads"), std::string::npos) << refused.err;
  std::string other = read_text(folder / "1");
  for (std::size_t at = 0; (at = other.find("processors", at)) != std::string::npos; at += 10)
    other.replace(at, 10, "PROCESSORS");
  write_text(folder / "other", other);
  const Ended machines = fovea({"compare", folder / "1", folder / "other"});
  EXPECT_EQ(machines.code, 2);
  EXPECT_NE(machines.err.find("PROCESSORS"), std::string::npos) << machines.err;
}

TEST(Bench, ALibraryMayHaveAVersionAndAPathACommaInIt) {
  const Folder folder;
  std::filesystem::create_directory(folder / "a,b");
  const std::string spec = bad_kernel("right"), library = folder / "a,b" + "/lib,c.so.1";
  std::filesystem::copy_file(spec.substr(0, spec.rfind(':')), library);
  const std::vector<Row> rows = bench("lq=16 d=8", "reference," + library + ":right,cpu.scalar", 0);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1].impl, library + ":right");
  for (const Row& row : rows) EXPECT_EQ(row.status, "ok") << row.reason;
}

TEST(Bench, BaselineAddsRatiosToTheTable) {
  const Ended run = fovea({"bench", "--problem", "lq=32 d=8", "--impl", "reference," + bad_kernel("right"),
                           "--baseline", "reference", "--repeat-for", "0.01"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("(1.00×)"), std::string::npos) << run.out;
}

TEST(Bench, BaselineMayBeCalledFlash) {
  const Ended run = fovea({"bench", "--problem", "lq=32 d=8 dtype=fp32,bf16", "--impl", "flash,reference", "--baseline",
                           "flash", "--repeat-for", "0.01", "--threads", "1"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("(1.00×)"), std::string::npos) << run.out;
}

TEST(Bench, BaselinesAreTimedWithoutSavedStateToo) {
  const Folder folder;
  const std::string file = folder / "no_saved.jsonl";
  const Ended run = fovea({"bench", "--problem", "lq=64 d=16 pass=bwd,e2e", "--impl", "cpu.scalar,naive", "--no-saved",
                           "--repeat-for", "0.01", "-o", file});
  EXPECT_EQ(run.code, 0) << run.err;
  expect_valid_records(file);
  std::map<std::string, int> rows;
  for (const auto& row : program::load_records(file).rows) {
    EXPECT_EQ(row.status, "ok") << row.impl << row.reason;
    ASSERT_TRUE(row.saved_bytes.has_value()) << row.impl;
    EXPECT_EQ(*row.saved_bytes > 0, row.impl == "naive") << row.impl;
    ++rows[row.impl];
  }
  EXPECT_EQ(rows, (std::map<std::string, int>{{"cpu.scalar", 2}, {"naive", 2}, {"naive@no_saved", 2}}));
}

// Row [1, 11, 18] of dq magnifies the rounding of out, which this implementation never reads.
TEST(Bench, SampledGradientsFromSavedStateAreNotJudgedByARoundedOut) {
  const Ended run = fovea({"bench", "--problem", "pass=bwd b=8 hq=12 lq=512 d=64 mask=causal dtype=fp16", "--impl",
                           "naive", "--repeat-for", "0.01"});
  EXPECT_EQ(run.code, 0) << run.out;
}

TEST(Bench, NothingSavedIsRefused) {
  const Ended forward = fovea({"bench", "--problem", "lq=8 d=8", "--impl", "naive", "--no-saved"});
  EXPECT_EQ(forward.code, 2);
  EXPECT_NE(forward.err.find("--no-saved"), std::string::npos) << forward.err;
  EXPECT_EQ(fovea({"bench", "--problem", "lq=8 d=8 pass=bwd", "--impl", "cpu.scalar", "--no-saved"}).code, 2);
}

TEST(Bench, SamplesRunAtTheHighestPriorityThatTheSystemGrants) {
  const pid_t child = fork();
  if (child == 0) _exit(setpriority(PRIO_PROCESS, 0, -20) == 0 ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const int wanted = status == 0 ? -20 : getpriority(PRIO_PROCESS, 0);
  const Folder folder;
  const std::string file = folder / "one.jsonl";
  ASSERT_EQ(fovea({"bench", "--problem", "lq=8 d=4", "--impl", "reference", "--repeat-for", "0.01", "-o", file}).code,
            0);
  EXPECT_EQ(program::load_records(file).environments.at(0).facts.at("nice"), std::to_string(wanted));
}

// Counts visible pairs one by one.
double counted_flops(const verification::AttentionCase& c) {
  const AttentionProblem& p = c.problem;
  double pairs = 0;
  for (std::int64_t i = 0; i < p.len_q; ++i) {
    for (std::int64_t j = 0; j < p.len_k; ++j) {
      const std::int64_t own = p.mask.alignment == Mask::Alignment::bottom_right ? i + p.len_k - p.len_q : i;
      pairs += own - j > p.mask.left || j - own > p.mask.right ? 0 : 1;
    }
  }
  pairs *= static_cast<double>(p.batch * p.heads_q);
  const double d = 2.0 * static_cast<double>(p.dim_qk), dv = 2.0 * static_cast<double>(p.dim_v);
  const double forward = pairs * (d + dv), backward = pairs * (3 * d + 2 * dv);
  return c.pass == verification::CasePass::fwd   ? forward
         : c.pass == verification::CasePass::bwd ? backward
                                                 : forward + backward;
}

TEST(Bench, FlopsAreThoseOfTheVisiblePairs) {
  std::uint64_t state = 1;
  const auto draw = [&state](std::int64_t most) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>(state >> 33) % most;
  };
  const char* const masks[] = {"none", "causal_top_left", "causal_bottom_right", "window_top_left left=7 right=2",
                               "window_bottom_right left=3"};
  const char* const passes[] = {"fwd", "bwd", "e2e"};
  for (int n = 0; n < 1000; ++n) {
    std::string line = std::string("pass=") + passes[draw(3)] + " mask=" + masks[draw(5)];
    for (const char* key : {"b", "lq", "lk", "d", "dv"})
      line += std::string(" ") + key + "=" + std::to_string(1 + draw(40));
    const verification::Case c = verification::parse_case(line + " hq=6 hkv=" + std::to_string(1 + draw(3)));
    ASSERT_DOUBLE_EQ(c.operation->cost(c).flops, counted_flops(verification::attention_case(c)))
        << verification::line_of(c);
  }
}

}  // namespace
}  // namespace fovea::tests
