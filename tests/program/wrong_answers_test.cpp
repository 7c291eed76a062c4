// Wrong answers that a weak comparison would accept are refused by the real bench; right ones are never refused.
#include <gtest/gtest.h>

#include "run_program.h"

namespace fovea::tests {
namespace {

using program::Row;

const std::string kProblem = "b=2 hq=2 lq=33 lk=47 d=8";

void expect_time(const Row& row) {
  EXPECT_EQ(row.status, "ok") << row.impl << ": " << row.reason;
  EXPECT_TRUE(row.time_s.has_value());
}

void expect_no_time(const Row& row, const std::string& status, const std::string& says) {
  EXPECT_EQ(row.status, status) << row.impl << ": " << row.reason;
  EXPECT_NE(row.reason.find(says), std::string::npos) << row.impl << ": " << row.reason;
  EXPECT_FALSE(row.time_s.has_value()) << row.impl;
  EXPECT_FALSE(row.tflops.has_value()) << row.impl;
}

struct WrongAnswer {
  const char* symbol;
  const char* tensor;
};

class WrongAnswers : public testing::TestWithParam<WrongAnswer> {};

TEST_P(WrongAnswers, AreMismatchesOnEveryMask) {
  const auto [symbol, tensor] = GetParam();
  const auto rows = bench(kProblem + " mask=none,causal_top_left data=normal,peaked", bad_kernel(symbol), 1);
  ASSERT_EQ(rows.size(), 4u);
  for (const Row& row : rows) expect_no_time(row, "mismatch", tensor);
}

// Comparing with NaN is false: a comparer that asks whether the error exceeds the limit lets it pass.
INSTANTIATE_TEST_SUITE_P(NanInfinityAndSign, WrongAnswers,
                         testing::Values(WrongAnswer{"not_a_number", "out"}, WrongAnswer{"infinite", "out"},
                                         WrongAnswer{"wrong_sign", "out"}, WrongAnswer{"slightly_wrong", "out"}),
                         [](const auto& one) { return one.param.symbol; });

// A factor is invisible to cosine similarity, a wrong lse to a check for NaN.
INSTANTIATE_TEST_SUITE_P(FactorAndLse, WrongAnswers,
                         testing::Values(WrongAnswer{"scaled", "out"}, WrongAnswer{"wrong_lse", "lse"}),
                         [](const auto& one) { return one.param.symbol; });

TEST(RightAnswers, AreTimedOnEveryPassMaskAndLayout) {
  const std::string sweep = " mask=none,causal_top_left,causal_bottom_right layout=bhld,blhd pass=fwd,bwd,e2e";
  for (const char* lengths : {"lq=17 lk=29", "lq=29 lk=17", "lq=1 lk=1"}) {
    const auto rows = bench(lengths + std::string(" b=2 hq=4 hkv=2 d=8 dv=5") + sweep, bad_kernel("right"), 0);
    ASSERT_EQ(rows.size(), 18u);
    for (const Row& row : rows) expect_time(row);
  }
}

TEST(RightAnswers, KernelsMayRefuseAType) {
  const auto rows = bench("lq=8 d=8 dtype=bf16,fp16", bad_kernel("right"), 0);
  for (const Row& row : rows) expect_no_time(row, "unsupported", "");
}

TEST(Timeouts, AHangDuringTimingEndsOnlyItsRow) {
  const auto rows =
      bench("lq=8 d=4", bad_kernel("hangs_when_timed") + "," + bad_kernel("right"), 0, {"--timeout", "0.5"});
  ASSERT_EQ(rows.size(), 2u);
  expect_no_time(rows[0], "timeout", "");
  expect_time(rows[1]);
}

TEST(Timeouts, TooSlowForThreeSamples) {
  const auto rows = bench("lq=8 d=4", bad_kernel("slow") + "," + bad_kernel("right"), 0, {"--timeout", "0.25"});
  ASSERT_EQ(rows.size(), 2u);
  expect_no_time(rows[0], "timeout", "");
  expect_time(rows[1]);
}

TEST(Timeouts, FewSamplesAreFlagged) {
  const auto rows = bench("lq=8 d=4", bad_kernel("slow"), 0);
  ASSERT_EQ(rows.size(), 1u);
  expect_time(rows[0]);
  EXPECT_GE(rows[0].time_s->n, 3);
  EXPECT_GE(rows[0].time_s->min, 0.1);
  EXPECT_TRUE(rows[0].has_flag("few_samples"));
}

TEST(Seeds, TheSameSeedGivesTheSameErrors) {
  const auto error_with = [](const char* seed) {
    const auto rows = bench(kProblem, bad_kernel("right"), 0, {"--seed", seed});
    return rows.at(0).error.at("out").rel_l2;
  };
  EXPECT_EQ(error_with("7"), error_with("7"));
  EXPECT_NE(error_with("7"), error_with("8"));
}

TEST(Memory, ACellLargerThanAnyMemoryIsARow) {
  const auto rows = bench("b=64 hq=64 lq=1024k d=128", "flash", 0);
  ASSERT_EQ(rows.size(), 1u);
  expect_no_time(rows[0], "oom", "needs 8.0 TiB");
}

// Sanitizers need more address space than this.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Libraries that allocate while they are loaded must not wait for memory, and probes without memory are left out.
TEST(Memory, AProgramWithLittleAddressSpaceEndsWithARow) {
  const Folder folder;
  const std::string file = folder / "rows.jsonl";
  const Ended run = fovea({"bench", "--problem", "lq=64,4k d=64 hq=64", "--impl", "flash", "--threads", "2",
                           "--repeat-for", "0.01", "-o", file},
                          {.address_limit = 200'000'000});
  EXPECT_EQ(run.code, 0) << run.err;
  const auto rows = program::load_records(file).rows;
  ASSERT_EQ(rows.size(), 2u);
  expect_no_time(rows[1], "oom", "could not be allocated");
}

// The stack of a further thread, and then the program's own allocations, find no room.
TEST(Memory, AProgramWithoutRoomForThreadsEndsInWords) {
  for (const std::int64_t limit : {54'000'000, 66'000'000, 72'000'000, 76'800'000}) {
    SCOPED_TRACE(limit);
    const Ended run =
        fovea({"bench", "--problem", "lq=256 d=64", "--impl", "naive,flash", "--threads", "2", "--repeat-for", "0.01"},
              {.address_limit = limit});
    if (run.code == 127) continue;  // no room to load the program
    EXPECT_TRUE(run.code == 0 || run.code == 1) << run.code << "\n" << run.err;
    for (const char* cause : {"fovea: std::bad_alloc", "fovea: Resource temporarily unavailable"})
      EXPECT_EQ(run.err.find(cause), std::string::npos) << run.err;
  }
}

// Its workspace of 256 MiB is beyond the limit: the results are neither right nor wrong.
TEST(Memory, VerifyJudgesNoCallWithoutMemory) {
  const std::vector<std::string> words = {"verify", "--impl", "naive", "--problem", "lq=8,8k d=16"};
  const Ended run = fovea(words, {.address_limit = 200'000'000});
  EXPECT_EQ(run.code, 0) << run.err;
  for (const char* part :
       {"not judged: naive on", "could not be allocated", "1 passed, 0 failed\n", "1 not judged: memory ran out"})
    EXPECT_NE(run.out.find(part), std::string::npos) << run.out;
}

TEST(Memory, VerifyThatJudgesNothingIsNoSuccess) {
  const Ended run = fovea({"verify", "--impl", "naive", "--problem", "lq=8k d=16"}, {.address_limit = 200'000'000});
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_NE(run.out.find("0 passed, 0 failed: nothing was judged, since memory ran out\n"), std::string::npos)
      << run.out;
  EXPECT_NE(fovea({"verify", "--help"}).out.find("memory ran out for every call"), std::string::npos);
}

// First the tensors, then the copies of the inputs beside them, are beyond the limit.
TEST(Memory, VerifyNamesTheCaseThatDoesNotFit) {
  const Ended tensors =
      fovea({"verify", "--impl", "reference", "--problem", "lq=32k hq=8 d=128"}, {.address_limit = 300'000'000});
  EXPECT_EQ(tensors.code, 2);
  EXPECT_NE(tensors.err.find("its tensors do not fit into memory"), std::string::npos) << tensors.err;
  EXPECT_NE(tensors.err.find("ulimit -v"), std::string::npos) << tensors.err;
  const Ended check =
      fovea({"verify", "--impl", "reference", "--problem", "lq=8k hq=16 d=128"}, {.address_limit = 420'000'000});
  EXPECT_EQ(check.code, 1);
  EXPECT_EQ(check.err.rfind("fovea: oom verify: no memory to check this case", 0), 0U) << check.err;
  EXPECT_NE(check.err.find("lq=8192"), std::string::npos) << check.err;
}
#endif

}  // namespace
}  // namespace fovea::tests
