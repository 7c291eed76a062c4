// Rows become groups; who is ranked, who is fastest, and what a speed-up is.
#include "fixture.h"
#include "fovea/error.h"
#include "program/record/record_file.h"
#include "program/report_study.h"

namespace fovea::program {
namespace {

const Configuration& only_configuration(const std::vector<Group>& groups) {
  EXPECT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups.front().configurations.size(), 1u);
  return groups.front().configurations.front();
}

TEST(Study, FastestIsTheLeastMedianOfTheRanked) {
  const Study study = study_of({timed(kAt + "512", "naive", 2e-3), timed(kAt + "512", "cpu.avx2", 1e-3)});
  const auto groups = groups_of(study, GroupBy::lengths);
  EXPECT_EQ(only_configuration(groups).fastest()->row.impl, "cpu.avx2");
}

TEST(Study, ImpossibleTimesAreNotRanked) {
  const Study study = study_of({timed(kAt + "512", "naive", 3e-3), timed(kAt + "512", "fused", 2e-3),
                                timed(kAt + "512", "cpu.avx2", 1e-9, {"impossible"})});
  const auto groups = groups_of(study, GroupBy::lengths);
  EXPECT_EQ(only_configuration(groups).fastest()->row.impl, "fused");
  EXPECT_FALSE(speed_up(only_configuration(groups), "cpu.avx2", "naive"));
}

TEST(Study, AFasterCellThatIsNotRankedLeavesTheRowUndecided) {
  for (const char* flag : {"launch_bound", "host_bound"}) {
    const Study study = study_of({timed(kAt + "512", "naive", 3e-3), timed(kAt + "512", "fused", 2e-3),
                                  timed(kAt + "512", "cpu.avx2", 1e-5, {flag})});
    const auto groups = groups_of(study, GroupBy::lengths);
    EXPECT_EQ(only_configuration(groups).fastest(), nullptr) << flag;
    EXPECT_FALSE(speed_up_ranked(only_configuration(groups), "cpu.avx2", "naive")) << flag;
  }
}

TEST(Study, NoisyCellsAreDecidedByTheirQuartiles) {
  const auto rows = [](double own) {  // quartiles 1 % to either side of the median
    return std::vector<Row>{timed(kAt + "512", "naive", 1e-3), timed(kAt + "512", "cpu.avx2", own, {"noisy"})};
  };
  const Study apart = study_of(rows(0.9e-3));
  const auto decided = groups_of(apart, GroupBy::lengths);
  ASSERT_NE(only_configuration(decided).fastest(), nullptr);
  EXPECT_EQ(only_configuration(decided).fastest()->row.impl, "cpu.avx2");
  EXPECT_TRUE(speed_up_ranked(only_configuration(decided), "cpu.avx2", "naive"));
  const Study overlapping = study_of(rows(0.99e-3));
  const auto open = groups_of(overlapping, GroupBy::lengths);
  EXPECT_EQ(only_configuration(open).fastest(), nullptr);
  EXPECT_FALSE(speed_up_ranked(only_configuration(open), "cpu.avx2", "naive"));
}

TEST(Study, ASingleImplementationBeatsNobody) {
  const Study study = study_of({timed(kAt + "512", "naive", 3e-3)});
  EXPECT_EQ(only_configuration(groups_of(study, GroupBy::lengths)).fastest(), nullptr);
}

TEST(Study, SpeedUpNeedsBothTimes) {
  const Study study = study_of({failed(kAt + "512", "naive", "oom"), timed(kAt + "512", "cpu.avx2", 1e-3)});
  EXPECT_FALSE(speed_up(only_configuration(groups_of(study, GroupBy::lengths)), "cpu.avx2", "naive"));
}

TEST(Study, OrderIsBaselinesPeersOwn) {
  const Study study = study_of({timed(kAt + "512", "cpu.avx2", 1e-3), timed(kAt + "512", "torch.sdpa", 1e-3),
                                timed(kAt + "512", "fused", 1e-3), timed(kAt + "512", "naive", 1e-3)});
  EXPECT_EQ(study.implementations, (std::vector<std::string>{"naive", "fused", "torch.sdpa", "cpu.avx2"}));
  EXPECT_EQ(study.baseline, "naive");
}

TEST(Study, GroupsSplitByEverythingButTheLength) {
  const Study study = study_of(
      {timed(kAt + "512", "naive", 1e-3), timed(kAt + "1k", "naive", 1e-3), timed(kAt + "512 hq=2", "naive", 1e-3),
       timed(kAt + "512 b=2", "naive", 1e-3), timed(kAt + "512 dtype=bf16", "naive", 1e-3),
       timed(kAt + "512 pass=bwd", "naive", 1e-3), timed(kAt + "512 layout=blhd", "naive", 1e-3),
       timed("d=64 lq=512", "naive", 1e-3), timed("d=128 lq=512 mask=causal", "naive", 1e-3)});
  EXPECT_EQ(groups_of(study, GroupBy::lengths).size(), 8u);
  EXPECT_EQ(groups_of(study, GroupBy::lengths_and_dims).size(), 7u);
}

TEST(Study, PowerLawIsRecovered) {
  std::vector<Row> rows;
  for (const double n : {256.0, 512.0, 1024.0, 2048.0, 4096.0}) {
    rows.push_back(timed(kAt + std::to_string(static_cast<int>(n)), "naive", 3e-9 * n * n));
  }
  const Study study = study_of(rows);
  const auto law = fit_power_law(groups_of(study, GroupBy::lengths).front(), "naive");
  ASSERT_TRUE(law);
  EXPECT_NEAR(law->exponent, 2, 1e-9);
  EXPECT_NEAR(law->coefficient, 3e-9, 1e-15);
  EXPECT_EQ(law->to, 4096);
}

TEST(Study, NoPowerLawFromTwoPoints) {
  const Study study = study_of({timed(kAt + "512", "naive", 1e-3), timed(kAt + "4k", "naive", 1e-2)});
  EXPECT_FALSE(fit_power_law(groups_of(study, GroupBy::lengths).front(), "naive"));
}

TEST(Study, LaterRowsReplaceEarlierOnes) {
  const Study study = study_of({timed(kAt + "512", "naive", 1e-3), timed(kAt + "512", "naive", 2e-3)});
  ASSERT_EQ(study.rows.size(), 1u);
  EXPECT_DOUBLE_EQ(study.rows[0].seconds(), 2e-3);
}

std::string file_of(const std::string& name, const std::vector<Row>& rows) {
  std::ofstream file(scratch(name));
  file << json_line(environment()) << "\n";
  for (const Row& one : rows) file << json_line(one) << "\n";
  return scratch(name);
}

// The time of an implementation at length 512.
double seconds_of(const Study& study, const std::string& implementation) {
  for (const Measured& one : study.rows) {
    if (one.row.impl == implementation && one.problem.problem.len_q == 512) return one.seconds();
  }
  return -1;
}

// A time beside a peer's is of the peer's run, whichever file is last; baselines that this run lacks stay.
TEST(Study, OursAndItsPeersAreOfOneRun) {
  std::vector<Row> beside{timed(kAt + "512", "cpu.avx2", 1e-3), timed(kAt + "512", "torch.sdpa", 2e-3),
                          timed(kAt + "512", "torch.math", 3e-3)};
  beside[1].timer = beside[2].timer = "perf_counter";
  const std::string peers = file_of("peers.jsonl", beside);
  const std::string later =
      file_of("later.jsonl", {timed(kAt + "512", "naive", 9e-3), timed(kAt + "512", "cpu.avx2", 5e-3),
                              timed(kAt + "512", "torch.cudnn", 6e-3), failed(kAt + "512", "onnxruntime", "error"),
                              timed(kAt + "1k", "torch.sdpa", 6e-3)});
  for (const auto& paths : {std::vector{peers, later}, std::vector{later, peers}}) {
    const Study study = load_study(paths, "");
    EXPECT_DOUBLE_EQ(seconds_of(study, "cpu.avx2"), 1e-3);
    EXPECT_DOUBLE_EQ(seconds_of(study, "naive"), 9e-3);
  }
  const std::string equal = file_of("equal.jsonl", {timed(kAt + "512", "cpu.avx2", 7e-3)});
  const std::string last = file_of("last.jsonl", {timed(kAt + "512", "cpu.avx2", 8e-3)});
  EXPECT_DOUBLE_EQ(seconds_of(load_study({equal, last}, ""), "cpu.avx2"), 8e-3);
}

TEST(Study, RowsOfAGpuAreNotDividedByTheThreadsOfItsHost) {
  for (const bool on_gpu : {false, true}) {
    const std::string at = std::string(on_gpu ? "device=cuda " : "") + "d=64 dtype=fp32 mask=causal lq=512";
    std::vector<Row> rows{timed(at, "naive", 2e-3), timed(at, "fused", 1e-3)};
    rows[1].threads = 16;
    const Study study = study_of(rows);
    const auto groups = groups_of(study, GroupBy::lengths);
    EXPECT_EQ(groups.size(), on_gpu ? 1u : 2u);
    EXPECT_EQ(groups.at(0).title.find("thread") == std::string::npos, on_gpu) << groups.at(0).title;
    const std::string conditions = conditions_of({&study.rows[0], &study.rows[1]});
    EXPECT_EQ(conditions.find("thread") == std::string::npos, on_gpu) << conditions;
  }
}

TEST(Study, UnknownBaselineIsRefusedWithTheNearest) {
  try {
    (void)study_of({timed(kAt + "512", "naive", 1e-3)}, "navie");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_NE(error.details().hint.find("naive"), std::string::npos);
  }
}

TEST(Study, DamagedFilesAreRefused) {
  const std::string path = scratch("damaged.jsonl");
  std::ofstream(path) << json_line(environment()) << "\n{\"schema\":\"fovea.be\n" << json_line(environment()) << "\n";
  EXPECT_THROW((void)load_study({path}, ""), RecordFileError);
}

// What else a reader must know of the times: whose they are, and what the machine did beside them.
TEST(Study, ConditionsNameFrameworksAndOtherWork) {
  Row peer = timed(kAt + "512", "torch.sdpa", 1e-3);
  peer.peer = "PyTorch 2.9.1";
  const Study study = study_of({peer, timed(kAt + "512", "naive", 1e-3)});
  Environment busy = environment();
  const auto conditions = [&](const std::string& load) {
    busy.facts["load"] = load;
    Measured one = study.rows.front();
    one.environment = &busy;
    return conditions_of({&one});
  };
  EXPECT_NE(conditions("0.10").find("; PyTorch 2.9.1; 2026-01-31"), std::string::npos) << conditions("0.10");
  EXPECT_NE(conditions("26.34").find("; other work on the machine: load 26"), std::string::npos) << conditions("26.34");
  EXPECT_EQ(conditions("2.21").find("other work"), std::string::npos) << "of the run before";
}

}  // namespace
}  // namespace fovea::program
