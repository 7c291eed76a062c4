// THE case list: it reaches every cell, is the same every time, and its failures shrink to something small.
#include "verification/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "verification/shrink.h"

namespace fovea::verification {
namespace {

TEST(Cases, TheFirstOnesReachEveryCell) {
  std::vector<int> visits(kCells, 0);
  for (std::uint64_t n = 0; n < 20 * kCells; ++n) {
    const core::Case c = random_case(1, n);
    if (c.pass != core::CasePass::bwd) ++visits[index_of(cell_of(c, Pass::forward))];
    if (c.pass != core::CasePass::fwd) ++visits[index_of(cell_of(c, Pass::backward))];
  }
  EXPECT_GE(*std::min_element(visits.begin(), visits.end()), 20);
}

TEST(Cases, EveryCellHasLengthsBeyondFourTiles) {
  std::vector<int> long_ones(kCells, 0);
  for (std::uint64_t n = 0; n < 70 * kCells; ++n) {  // a full run
    const core::Case c = random_case(1, n);
    if (std::max(c.problem.len_q, c.problem.len_k) > 256) ++long_ones[index_of(cell_of(c, c.problem.pass))];
  }
  EXPECT_GT(*std::min_element(long_ones.begin(), long_ones.end()), 0);
}

TEST(Cases, EveryFamilyPlacementAndSizeOfInterestAppears) {
  std::map<std::string, int> seen;
  for (std::uint64_t n = 0; n < 5000; ++n) {
    const core::Case c = random_case(3, n);
    const AttentionProblem& p = c.problem;
    ++seen[c.data];
    ++seen[c.place];
    seen["no keys"] += p.len_k == 0 ? 1 : 0;
    seen["no queries"] += p.len_q == 0 ? 1 : 0;
    seen["one query"] += p.len_q == 1 ? 1 : 0;
    seen["no batch"] += p.batch == 0 ? 1 : 0;
    seen["rows without keys"] += p.mask == Mask::causal_bottom_right && p.len_q > p.len_k ? 1 : 0;
    seen["unequal dimensions"] += p.dim_qk != p.dim_v ? 1 : 0;
    if (p.heads_kv > 0) seen["group of " + std::to_string(p.heads_q / p.heads_kv)] += 1;
  }
  for (const auto family : core::kDataFamilies) EXPECT_GT(seen[std::string(family)], 100) << family;
  for (const auto place : core::kPlacements) EXPECT_GT(seen[std::string(place)], 100) << place;
  for (const char* what : {"no keys", "no queries", "one query", "no batch", "rows without keys", "unequal dimensions",
                           "group of 1", "group of 2", "group of 3", "group of 5", "group of 7", "group of 8"})
    EXPECT_GT(seen[what], 10) << what;
}

TEST(Cases, AreTheSameEveryTimeAndReplayFromTheirLine) {
  for (std::uint64_t n = 0; n < 2000; ++n) {
    const core::Case c = random_case(5, n);
    EXPECT_EQ(c, random_case(5, n));
    const core::Case replayed = core::parse_case(core::line_of(c));
    EXPECT_EQ(replayed, c) << core::line_of(c);
    EXPECT_EQ(variation_of(replayed), variation_of(c));
  }
  EXPECT_NE(random_case(5, 0), random_case(6, 0));
}

TEST(Cases, PassesCanBeAskedFor) {
  for (std::uint64_t n = 0; n < 300; ++n) {
    EXPECT_EQ(random_case(1, n, {.forward = true, .backward = false}).pass, core::CasePass::fwd);
    EXPECT_NE(random_case(1, n, {.forward = false, .backward = true}).pass, core::CasePass::fwd);
  }
}

TEST(Shrink, FindsTheSmallestCaseThatStillFails) {
  const core::Case c = core::parse_case(
      "b=3 hq=8 hkv=2 lq=300 lk=500 d=96 dv=64 dtype=bf16 mask=causal_bottom_right data=ramps place=guarded");
  int calls = 0;
  const auto fails = [&calls](const core::Case& candidate) {
    ++calls;
    return candidate.problem.len_k >= 65 && candidate.problem.dim_qk >= 17;
  };
  const core::Case small = shrunk(c, fails);
  EXPECT_TRUE(fails(small));
  EXPECT_EQ(small.problem.len_k, 65);
  EXPECT_EQ(small.problem.dim_qk, 17);
  EXPECT_EQ(small.problem.len_q, 1);
  EXPECT_EQ(small.problem.batch * small.problem.heads_q, 1);
  EXPECT_EQ(small.data, "normal");
  EXPECT_EQ(small.problem.dtype, DType::fp32);
  EXPECT_LE(calls, 201);
}

TEST(Shrink, LeavesACaseThatIsAlreadySmall) {
  const core::Case c = core::parse_case("b=1 hq=1 lq=1 d=1");
  EXPECT_EQ(shrunk(c, [](const core::Case&) { return true; }), c);
}

}  // namespace
}  // namespace fovea::verification
