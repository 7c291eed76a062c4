// The kinds that a plan names: tails of tiles and blocks, and none at all where there is nothing to compute.
#include "cpu/plan_kinds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "cpu/backward.h"
#include "cpu/forward.h"
#include "engine.h"

namespace fovea::cpu {
namespace {

using Kinds = std::vector<std::string_view>;

AttentionProblem problem_of(Pass pass, std::int64_t len_q, std::int64_t len_k, std::int64_t batch = 1) {
  AttentionProblem p;
  p.pass = pass;
  p.batch = batch, p.heads_q = p.heads_kv = 1, p.len_q = len_q, p.len_k = len_k, p.dim_qk = p.dim_v = 64;
  return p;
}

Kinds kinds_of(const Kernels& kernels, const AttentionProblem& p) {
  const auto list = [](const core::Plan& plan) { return Kinds(plan.kinds.begin(), plan.kinds.end()); };
  return p.pass == Pass::forward ? list(*plan_forward(kernels, p)) : list(BackwardPlan(kernels, p));
}

bool has(const Kinds& kinds, std::string_view one) { return std::find(kinds.begin(), kinds.end(), one) != kinds.end(); }

TEST(PlanKinds, TailsOfTilesAndBlocks) {
  for (const Kernels* kernels : all_kernels()) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const std::int64_t block = pass == Pass::forward ? kernels->key_block : kernels->backward_block;
      for (const std::int64_t rows : {0, 1, kernels->query_tile - 1}) {
        for (const std::int64_t keys : {std::int64_t{0}, std::int64_t{1}, block - 1}) {
          const Kinds kinds = kinds_of(*kernels, problem_of(pass, 16 * kernels->query_tile + rows, 4 * block + keys));
          EXPECT_EQ(has(kinds, kinds::kQueryTail), rows != 0) << rows << " rows of a tile of " << kernels->query_tile;
          EXPECT_EQ(has(kinds, kinds::kKeyTail), keys != 0) << keys << " keys of a block of " << block;
        }
      }
    }
  }
}

TEST(PlanKinds, ProblemsWithoutWorkHaveNone) {
  for (const Kernels* kernels : all_kernels()) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      EXPECT_EQ(kinds_of(*kernels, problem_of(pass, 300, 0)), Kinds{}) << "no keys";
      EXPECT_EQ(kinds_of(*kernels, problem_of(pass, 0, 300)), Kinds{}) << "no queries";
      EXPECT_EQ(kinds_of(*kernels, problem_of(pass, 300, 300, 0)), Kinds{}) << "no sequences";
      EXPECT_NE(kinds_of(*kernels, problem_of(pass, 300, 300)), Kinds{});
    }
  }
}

}  // namespace
}  // namespace fovea::cpu
