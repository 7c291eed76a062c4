// THE case list: it reaches every cell, is the same every time, and its failures shrink to something small.
#include "verification/attention/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cpu/backward.h"
#include "cpu/forward.h"
#include "cpu/isa.h"
#include "cpu/plan_kinds.h"
#include "verification/problem_line.h"
#include "verification/shrink.h"

namespace fovea::verification {
namespace {

TEST(Cases, TheFirstCasesReachEveryCell) {
  std::vector<int> visits(kCells, 0);
  for (std::uint64_t n = 0; n < 20 * kCells; ++n) {
    const verification::AttentionCase c = random_case(1, n);
    if (c.pass != verification::CasePass::bwd) ++visits[index_of(cell_of(c, Pass::forward))];
    if (c.pass != verification::CasePass::fwd) ++visits[index_of(cell_of(c, Pass::backward))];
  }
  EXPECT_GE(*std::min_element(visits.begin(), visits.end()), 20);
}

// The index of the one cell that the case walks through; e2e belongs to backward.
std::size_t walked_cell(const verification::AttentionCase& c) {
  return index_of(cell_of(c, c.pass == verification::CasePass::fwd ? Pass::forward : Pass::backward));
}

TEST(Cases, AsManyConsecutiveCasesAsCellsLieInDifferentCells) {
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{12345}, UINT64_MAX}) {
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{77}, std::uint64_t{1} << 40}) {
      std::set<std::size_t> cells;
      for (std::uint64_t n = first; n < first + kCells; ++n) cells.insert(walked_cell(random_case(seed, n)));
      EXPECT_EQ(cells.size(), kCells) << seed << " " << first;
    }
  }
}

// A sanitizer runs few cases.
TEST(Cases, ShortRunsHaveEveryTypePassMaskLayoutAndClassOfDimensions) {
  for (std::uint64_t seed = 0; seed < kCells; ++seed) {
    std::set<std::pair<std::size_t, std::size_t>> types_and_passes;
    std::set<std::size_t> masks, layouts, dims;
    for (std::uint64_t n = 0; n < 40; ++n) {
      const Cell cell = cell_of(walked_cell(random_case(seed, n)));
      types_and_passes.emplace(cell.dtype, cell.pass);
      masks.insert(cell.mask);
      layouts.insert(cell.layout);
      dims.insert(cell.dim_class);
    }
    EXPECT_EQ(types_and_passes.size(), std::size(kDtypes) * std::size(kPasses)) << seed;
    EXPECT_EQ(masks.size(), core::kMaskWords) << seed;
    EXPECT_EQ(layouts.size(), std::size(kLayouts)) << seed;
    EXPECT_EQ(dims.size(), dim_classes().size()) << seed;
  }
}

// A run on a GPU is cut among processes, each with a seed of its own: all begin at case 0.
TEST(Cases, RunsOfConsecutiveSeedsTogetherReachEveryCell) {
  for (const std::uint64_t first : {std::uint64_t{1}, std::uint64_t{9}, std::uint64_t{17}, UINT64_MAX - 7}) {
    std::set<std::size_t> cells;
    for (std::uint64_t share = 0; share < 16; ++share) {
      for (std::uint64_t n = 0; n < 125; ++n) cells.insert(walked_cell(random_case(first + share, n)));
    }
    EXPECT_EQ(cells.size(), kCells) << first;
  }
}

TEST(Cases, WithEveryInputHasEveryFamilyAtEveryPlacement) {
  const auto given = parse_sweep("lq=3 lk=5 d=4 dtype=fp32,fp16 pass=fwd,bwd seed=7");
  const auto all = with_every_input(given);
  std::set<std::string> inputs;
  std::set<std::uint64_t> seeds;
  for (const Case& c : all) {
    inputs.insert(c["pass"] + c["dtype"] + c.data() + "/" + c.place());
    seeds.insert(c.seed());
    EXPECT_EQ(parse_case(line_of(c)), c);
    EXPECT_EQ(c.count("lk"), 5);
  }
  EXPECT_EQ(all.size(), given.size() * std::size(verification::kDataFamilies) * std::size(verification::kPlacements));
  EXPECT_EQ(inputs.size(), all.size());
  EXPECT_EQ(seeds.size(), all.size());
  EXPECT_EQ(all.front().seed(), 7u);
}

// The largest tile and block of the engine, whatever this machine runs.
TEST(Cases, EveryCellHasQueriesAndKeysBeyondFourTiles) {
  for (const auto isa : {cpu::Isa::scalar, cpu::Isa::avx2, cpu::Isa::avx512, cpu::Isa::avx512_bf16, cpu::Isa::amx}) {
    const cpu::Kernels* const kernels = cpu::kernels_of(isa);
    if (kernels == nullptr) continue;  // a build for another processor
    EXPECT_GT(kBeyondFourTiles, 4 * kernels->query_tile);
    EXPECT_GT(kBeyondFourTiles, 4 * kernels->backward_block);
    EXPECT_GT(kBeyondFourTiles, 2 * kernels->key_block);
  }
  std::vector<int> many_queries(kCells, 0), many_keys(kCells, 0);
  for (std::uint64_t n = 0; n < 20000; ++n) {  // a full run
    const verification::AttentionCase c = random_case(1, n);
    if (c.problem.batch == 0 || c.problem.heads_q == 0) continue;
    for (const Pass pass : kPasses) {
      if (c.pass == (pass == Pass::forward ? verification::CasePass::bwd : verification::CasePass::fwd)) continue;
      const std::size_t cell = index_of(cell_of(c, pass));
      if (c.problem.len_q >= kBeyondFourTiles && c.problem.len_k > 0) ++many_queries[cell];
      if (c.problem.len_k >= kBeyondFourTiles && c.problem.len_q > 0) ++many_keys[cell];
    }
  }
  EXPECT_GE(*std::min_element(many_queries.begin(), many_queries.end()), 3);
  EXPECT_GE(*std::min_element(many_keys.begin(), many_keys.end()), 3);
}

TEST(Cases, EveryFamilyPlacementAndSizeOfInterestAppears) {
  std::map<std::string, int> seen;
  for (std::uint64_t n = 0; n < 5000; ++n) {
    const verification::AttentionCase c = random_case(3, n);
    const AttentionProblem& p = c.problem;
    ++seen[c.data];
    ++seen[c.place];
    seen["no keys"] += p.len_k == 0 ? 1 : 0;
    seen["no queries"] += p.len_q == 0 ? 1 : 0;
    seen["one query"] += p.len_q == 1 ? 1 : 0;
    seen["no batch"] += p.batch == 0 ? 1 : 0;
    const bool is_window = core::word_of(p.mask).is_window;
    seen["window of one key"] += is_window && p.mask.left == 0 && p.mask.right == 0 ? 1 : 0;
    seen["window unlimited to the left"] += is_window && p.mask.left == Mask::kUnlimited ? 1 : 0;
    seen["window unlimited to the right"] += is_window && p.mask.right == Mask::kUnlimited ? 1 : 0;
    seen["window of no limit that counts"] += is_window && p.mask.left == Mask::kLargestBound ? 1 : 0;
    seen["window shorter than half the keys"] += is_window && p.mask.left < p.len_k / 4 && p.mask.right < p.len_k / 4;
    seen["rows without keys"] += p.mask == Mask::causal_bottom_right && p.len_q > p.len_k ? 1 : 0;
    seen["unequal dimensions"] += p.dim_qk != p.dim_v ? 1 : 0;
    if (p.heads_kv > 0) seen["group of " + std::to_string(p.heads_q / p.heads_kv)] += 1;
  }
  for (const auto family : verification::kDataFamilies) EXPECT_GT(seen[std::string(family)], 100) << family;
  for (const auto place : verification::kPlacements) EXPECT_GT(seen[std::string(place)], 100) << place;
  for (const char* what : {"no keys", "no queries", "one query", "no batch", "rows without keys", "unequal dimensions",
                           "window of one key", "window unlimited to the left", "window unlimited to the right",
                           "window of no limit that counts", "window shorter than half the keys", "group of 1",
                           "group of 2", "group of 3", "group of 5", "group of 7", "group of 8"})
    EXPECT_GT(seen[what], 10) << what;
}

TEST(Cases, HaveDimensionsUpTo4096AndEmptySizesBesideHugeOnes) {
  std::map<std::string, int> seen;
  std::int64_t most_dim = 0;
  for (std::uint64_t n = 0; n < 10000; ++n) {
    const AttentionProblem p = random_case(3, n).problem;
    most_dim = std::max(most_dim, p.dim_qk);
    constexpr std::int64_t kHuge = 2048;
    seen["no queries, many keys"] += p.len_q == 0 && p.len_k >= kHuge ? 1 : 0;
    seen["no keys, many queries"] += p.len_k == 0 && p.len_q >= kHuge ? 1 : 0;
    seen["no batch, many heads"] += p.batch == 0 && p.heads_kv >= kHuge ? 1 : 0;
    seen["no query heads, many sequences"] += p.heads_q == 0 && p.batch * p.heads_kv >= kHuge ? 1 : 0;
  }
  EXPECT_EQ(most_dim, 4096);
  EXPECT_EQ(seen.size(), 4u);
  for (const auto& [what, count] : seen) EXPECT_GT(count, 5) << what;
}

// In a full run, on each instruction set of the machine, whose kernels tell the sizes in a plan.
TEST(Cases, EveryKindOfPlanAppears) {
  for (const auto isa : {cpu::Isa::scalar, cpu::Isa::avx2, cpu::Isa::avx512, cpu::Isa::avx512_bf16, cpu::Isa::amx}) {
    const cpu::Kernels* const kernels = cpu::kernels_of(isa);
    if (kernels == nullptr || !cpu::missing(isa).empty()) continue;
    std::map<std::string_view, int> forward, backward;
    for (std::uint64_t n = 0; n < 20000; ++n) {
      const AttentionCase c = random_case(1, n);
      AttentionProblem p = c.problem;
      if (kernels->bf16_dot && p.dtype != DType::bf16) continue;
      p.pass = Pass::forward;
      if (c.pass != CasePass::bwd) {
        const auto plan = cpu::plan_forward(*kernels, p);
        for (const std::string_view one : plan->kinds) ++forward[one];
      }
      p.pass = Pass::backward;
      if (c.pass != CasePass::fwd) {
        const cpu::BackwardPlan plan(*kernels, p);
        for (const std::string_view one : plan.kinds) ++backward[one];
      }
    }
    EXPECT_EQ(forward.size(), std::size(cpu::kinds::kOfForward));
    EXPECT_EQ(backward.size(), std::size(cpu::kinds::kOfBackward));
    const std::string_view name = cpu::name_of(isa);
    for (const std::string_view one : cpu::kinds::kOfForward) EXPECT_GE(forward[one], 10) << name << ": " << one;
    for (const std::string_view one : cpu::kinds::kOfBackward) EXPECT_GE(backward[one], 10) << name << ": " << one;
  }
}

// A short run, as for each mutation of the sources, compares dQ where it is a sum of several tasks' partials.
TEST(Cases, ShortRunsDivideTheKeysOfBackward) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    int divided = 0;
    for (std::uint64_t n = 0; n < 250; ++n) {
      const AttentionCase c = random_case(seed, n);
      const AttentionProblem& p = c.problem;
      if (c.pass != CasePass::fwd && p.len_k >= 1024 && p.len_q > 0 && p.batch * p.heads_kv < 16) ++divided;
    }
    EXPECT_GE(divided, 3) << seed;
  }
}

// The same of forward, which divides the keys of few queries; from 13 rows on with other loops.
TEST(Cases, ShortRunsDivideTheKeysOfFewQueries) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    int few = 0, more = 0;
    for (std::uint64_t n = 0; n < 500; ++n) {
      const AttentionCase c = random_case(seed, n);
      const AttentionProblem& p = c.problem;
      if (c.pass == CasePass::bwd || p.len_k < 1024 || p.batch * p.heads_kv == 0) continue;
      const std::int64_t rows = p.len_q * p.heads_q / p.heads_kv;
      few += rows >= 1 && rows <= 12 ? 1 : 0;
      more += rows >= 13 && rows <= 16 ? 1 : 0;
    }
    EXPECT_GE(few, 3) << seed;
    EXPECT_GE(more, 1) << seed;
  }
}

TEST(Cases, AreTheSameEveryTimeAndReplayFromTheirLine) {
  for (std::uint64_t n = 0; n < 2000; ++n) {
    const verification::AttentionCase c = random_case(5, n);
    EXPECT_EQ(c, random_case(5, n));
    const verification::AttentionCase replayed = verification::attention_case(verification::line_of(c));
    EXPECT_EQ(replayed, c) << verification::line_of(c);
    EXPECT_EQ(variation_of(replayed), variation_of(c));
  }
  EXPECT_NE(random_case(5, 0), random_case(6, 0));
}

TEST(Cases, CanBeLimitedToPasses) {
  for (std::uint64_t n = 0; n < 300; ++n) {
    EXPECT_EQ(random_case(1, n, {.forward = true, .backward = false}).pass, verification::CasePass::fwd);
    EXPECT_NE(random_case(1, n, {.forward = false, .backward = true}).pass, verification::CasePass::fwd);
  }
}

TEST(Shrink, FindsTheSmallestCaseThatStillFails) {
  const Case c = parse_case(
      "b=3 hq=8 hkv=2 lq=300 lk=500 d=96 dv=64 dtype=bf16 mask=causal_bottom_right data=ramps place=guarded");
  int calls = 0;
  const auto fails = [&calls](const Case& candidate) {
    ++calls;
    return candidate.count("lk") >= 65 && candidate.count("d") >= 17;
  };
  const Case small = shrunk(c, fails);
  EXPECT_TRUE(fails(small));
  EXPECT_EQ(small.count("lk"), 65);
  EXPECT_EQ(small.count("d"), 17);
  EXPECT_EQ(small.count("lq"), 1);
  EXPECT_EQ(small.count("b") * small.count("hq"), 1);
  EXPECT_EQ(small.data(), "normal");
  EXPECT_EQ(small.dtype(), DType::fp32);
  EXPECT_LE(calls, 201);
}

TEST(Shrink, TurnsWindowsIntoSimplerMasks) {
  const auto smallest = [](const std::string& line, bool (*fails)(const AttentionProblem&)) {
    const Case small = shrunk(parse_case(line), [fails](const Case& c) { return fails(attention_case(c).problem); });
    EXPECT_EQ(parse_case(line_of(small)), small) << line_of(small);
    return core::text_of(attention_case(small).problem.mask);
  };
  const std::string line = "lq=300 lk=500 d=8 mask=window_bottom_right left=200 right=40";
  EXPECT_EQ(smallest(line, [](const AttentionProblem& p) { return p.len_k >= 65; }), "none");
  EXPECT_EQ(smallest(line, [](const AttentionProblem& p) { return p.mask != Mask::none; }), "causal");
  EXPECT_EQ(
      smallest(line, [](const AttentionProblem& p) { return p.mask.left >= 37 && p.mask.left != Mask::kUnlimited; }),
      "window_bottom_right left=37 right=1");
  EXPECT_EQ(smallest(line, [](const AttentionProblem& p) { return p.mask.right >= 9 && p.mask != Mask::none; }),
            "window_bottom_right left=1 right=9");
}

// A failing line is replayed with the variation of its own seed: no simplification may change what it says.
TEST(Shrink, KeepsTheVariation) {
  int alone = 0;
  for (std::uint64_t n = 0; n < 3000; ++n) {
    const AttentionCase c = random_case(11, n);
    const Variation before = variation_of(c);
    const auto expect_the_same = [&](const Case& smaller) {
      Variation after = variation_of(attention_case(smaller));
      if (smaller.dtype() != c.problem.dtype) after.fp32_results = before.fp32_results;  // says nothing of fp32
      EXPECT_EQ(words_of(after), words_of(before)) << line_of(c) << "\n" << line_of(smaller);
    };
    for (const bool together : {false, true}) {
      (void)shrunk(case_of(c), [&](const Case& smaller) {
        expect_the_same(smaller);
        ++alone;
        return together;
      });
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(alone, 3000 * 10);
}

TEST(Shrink, LeavesACaseThatIsAlreadySmall) {
  const Case c = parse_case("b=1 hq=1 lq=1 d=1");
  EXPECT_EQ(shrunk(c, [](const Case&) { return true; }), c);
}

}  // namespace
}  // namespace fovea::verification
