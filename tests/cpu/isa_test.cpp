// Which instruction sets there are, and how one is forced.
#include "cpu/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "cpu/measure/probe_table.h"
#include "cpu/measure/probes.h"
#include "engine.h"

namespace fovea::cpu {
namespace {

TEST(Isa, ScalarAlwaysRuns) { EXPECT_TRUE(missing(Isa::scalar).empty()); }

TEST(Isa, EachIncludesTheEarlierOnes) {
  for (const Isa isa : {Isa::amx, Isa::avx512_bf16, Isa::avx512, Isa::avx2}) {
    const Isa before = static_cast<Isa>(static_cast<int>(isa) - 1);
    EXPECT_TRUE(!missing(isa).empty() || missing(before).empty());
  }
}

TEST(Isa, DetectionAgreesWithTheCompiler) {
#if defined(__x86_64__)
  EXPECT_EQ(missing(Isa::avx2).empty(), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(missing(Isa::avx512).empty(), __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
#endif
}

// A system without AMX refuses its registers; the answer never changes.
TEST(Isa, TileRegistersNeedThePermissionOfTheSystem) {
  const std::string first = tile_registers_refusal();
  EXPECT_TRUE(missing(Isa::amx).empty() || !first.empty());
  EXPECT_EQ(tile_registers_refusal(), first);
}

// Where the registers are granted, bf16 takes them unless few query rows read a key head. Elsewhere a line of explain
// says why not.
TEST(Isa, TileRegistersLeadForBf16) {
  const verification::AttentionCase many = verification::attention_case("lq=17 lk=40 d=16 dtype=bf16"),
                                    few = verification::attention_case("lq=16 lk=40 d=16 dtype=bf16");
  const std::string obstacle = missing(Isa::amx).empty() ? tile_registers_refusal() : missing(Isa::amx);
  const Explanation explanation = explain(many.problem);
  EXPECT_EQ(explanation.chosen == "cpu.amx", obstacle.empty());
  EXPECT_NE(explain(few.problem).chosen, "cpu.amx");
  for (const auto& step : explanation.walk) {
    if (step.name != "cpu.amx") continue;
    EXPECT_EQ(step.reason.empty(), obstacle.empty()) << step.reason;
    EXPECT_TRUE(step.reason.starts_with(obstacle)) << step.reason;
    EXPECT_EQ(step.reason.find("cpu.scalar") != std::string::npos, !missing(Isa::amx).empty()) << step.reason;
  }
}

TEST(Isa, TheEnvironmentCapsTheAutomaticChoice) {
  EXPECT_EQ(passed_over(Isa::scalar, "avx2"), "");
  EXPECT_EQ(passed_over(Isa::avx2, "avx2"), "");
  EXPECT_EQ(passed_over(Isa::avx512, "avx2"), "FOVEA_CPU_ISA=avx2");
  EXPECT_EQ(passed_over(Isa::avx512, "sse9"), "");
  try {
    check_cap("sse9");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_EQ(error.details().argument, "FOVEA_CPU_ISA");
    EXPECT_EQ(error.details().got, "sse9");
  }
  EXPECT_EQ(passed_over(Isa::avx512_bf16, "avx512_bf16"), "");
  EXPECT_EQ(passed_over(Isa::amx, "avx512_bf16"), "FOVEA_CPU_ISA=avx512_bf16");
  EXPECT_EQ(passed_over(Isa::amx, ""), "");
  EXPECT_EQ(passed_over(Isa::avx512, ""), "");
}

// Started with FOVEA_CPU_ISA=scalar by CMake: the list is made once per process.
TEST(Isa, ImplementationsAboveACapRunWhenNamed) {
  if (std::getenv("FOVEA_EXPECT_CAP") == nullptr) GTEST_SKIP() << "runs in a process of its own";
  const verification::AttentionCase c = verification::attention_case("lq=4 lk=4 d=8");
  EXPECT_EQ(explain(c.problem).chosen, "cpu.scalar");
  for (const auto& one : implementations()) EXPECT_EQ(one.automatic, one.name == "cpu.scalar");
  EXPECT_EQ(explain(c.problem, "cpu.avx2").chosen, missing(Isa::avx2).empty() ? "cpu.avx2" : "");
}

TEST(Isa, AMissingOneGivesTheReason) {
  const verification::AttentionCase c = verification::attention_case("lq=4 lk=4 d=8 dtype=bf16");
  for (const auto& one : implementations()) {
    if (one.obstacle().empty()) continue;
    const verification::CaseTensors tensors = verification::make_tensors(c);
    try {
      attention_forward(tensors.forward(), forced(c, one.name));
      FAIL() << one.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::unsupported);
      EXPECT_NE(std::string(error.what()).find(one.obstacle()), std::string::npos);
    }
  }
}

// Sizes of a plan come from functions compiled for the instruction set, which such a machine cannot run.
TEST(Isa, AMissingOneTellsWhatItTakesWithoutAPlan) {
  const verification::AttentionCase c = verification::attention_case("lq=40 lk=40 d=64 dtype=bf16");
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    AttentionProblem problem = c.problem;
    problem.pass = pass;
    for (const auto& one : implementations()) {
      const core::Prepared prepared = one.prepared(problem);
      if (!prepared.refusal.empty()) continue;  // the type, or the system permits no tile registers
      EXPECT_EQ(prepared.plan != nullptr, one.obstacle().empty()) << one.name;
    }
  }
}

TEST(Isa, ImplementationsRefuseToSaveState) {
  verification::AttentionCase c = verification::attention_case("lq=4 lk=4 d=8");
  c.problem.saved_state = true;
  for (const auto& one : implementations()) EXPECT_NE(one.prepared(c.problem).refusal, "");
}

TEST(Probes, CeilingsArePositive) {
  EXPECT_GT(fma_flops_per_second(best_isa(), 1, 0.01), 1e8);
  EXPECT_EQ(bf16_dot_flops_per_second(1, 0.01) > 0, missing(Isa::avx512_bf16).empty());
  EXPECT_EQ(bf16_tile_flops_per_second(1, 0.01) > 0, missing(Isa::amx).empty() && tile_registers_refusal().empty());
  EXPECT_GT(read_bandwidth(2, 0.01, 1 << 24), 1e7);
  EXPECT_GT(read_bandwidth(1, 0.01), 1e7) << "a read behind so much memory is a fault";
}

// What measures is tested by a second measurement. One of five pairs must agree; a wrong count spoils all of them.
TEST(Probes, ARateCountsTheOperationsOfItsProbe) {
  const auto best_rate = [] {
    double best = 0;
    for (int n = 0; n < 20; ++n) {
      const auto start = std::chrono::steady_clock::now();
      const double operations = kScalarProbes.fma_peak(200'000);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      best = std::max(best, operations / seconds.count());
    }
    return best;
  };
  bool agrees = false;
  for (int n = 0; n < 5 && !agrees; ++n) {
    const double ratio = fma_flops_per_second(Isa::scalar, 1, 0.02) / best_rate();
    agrees = 0.67 < ratio && ratio < 1.5;
  }
  EXPECT_TRUE(agrees);
}

// A product of lanes and chains, twice: a multiply-add is two operations. A dot product of two bf16 is four.
TEST(Probes, CountTheOperationsOfEveryRound) {
  const auto expect_counts = [](const Probes& probes, Isa isa) {
    if (!missing(isa).empty()) return;
    const double round = probes.fma_peak(1);
    EXPECT_EQ(round, 2.0 * 12 * kernels_of(isa)->lanes);
    EXPECT_EQ(probes.fma_peak(10), 10 * round);
    if (probes.dot_peak == nullptr) return;
    EXPECT_EQ(probes.dot_peak(10), 10 * 2 * round);
  };
  expect_counts(kScalarProbes, Isa::scalar);
#if defined(__x86_64__)
  expect_counts(kAvx2Probes, Isa::avx2);
  expect_counts(kAvx512Probes, Isa::avx512);
  expect_counts(kAvx512Bf16Probes, Isa::avx512_bf16);
  if (!missing(Isa::amx).empty() || !tile_registers_refusal().empty()) return;
  EXPECT_EQ(kAmxProbes.dot_peak(10), 10 * 6 * 2.0 * 16 * 16 * 32);  // six products of tiles
#endif
}

}  // namespace
}  // namespace fovea::cpu
