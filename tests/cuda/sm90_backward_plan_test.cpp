// Plans of cuda.sm90's backward on the devices that plan_test.cpp describes: any machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cuda/attention/sm90/plan.h"

namespace fovea::cuda::sm90 {
namespace {

AttentionProblem problem_of(std::int64_t length, Mask mask) {
  AttentionProblem p;
  p.pass = Pass::backward;
  p.batch = 2, p.heads_q = 8, p.heads_kv = 2;
  p.len_q = p.len_k = length;
  p.dim_qk = p.dim_v = 128;
  p.dtype = p.result_dtype = DType::bf16;
  p.mask = mask;
  p.scale = 0.1;
  p.device = {.kind = DeviceKind::cuda, .index = 0};
  return p;
}

std::shared_ptr<const BackwardPlan> plan_of(const AttentionProblem& p) {
  const core::Prepared prepared = prepare(p, 0);
  EXPECT_EQ(prepared.refusal, "");
  return std::static_pointer_cast<const BackwardPlan>(prepared.plan);
}

void expect_refusal(const AttentionProblem& p, const std::string& part) {
  const core::Prepared prepared = prepare(p, 0);
  EXPECT_EQ(prepared.plan, nullptr);
  EXPECT_NE(prepared.refusal.find(part), std::string::npos) << prepared.refusal;
}

TEST(Sm90BackwardPlan, TellsWhyItRefuses) {
  AttentionProblem p = problem_of(1000, Mask::none);
  p.dtype = p.result_dtype = DType::fp32;
  expect_refusal(p, "fp32");
  p = problem_of(1000, Mask::none);
  p.dim_qk = 136;
  expect_refusal(p, "dim_qk = 136, takes multiples of 8 up to 128");
  p = problem_of(1000, Mask::none);
  p.dim_v = 60;
  expect_refusal(p, "dim_v = 60");
  p = problem_of(1000, Mask::none);
  p.scale = -1;
  expect_refusal(p, "scale");
  p = problem_of(0, Mask::none);
  expect_refusal(p, "a size is 0");
  p = problem_of(std::int64_t{1} << 29, Mask::causal_bottom_right);
  p.heads_q = p.heads_kv = 1 << 10;
  expect_refusal(p, "takes up to");
}

// A masked key tile visits too few query tiles for the ring, and a ring must be on the chip as a whole.
TEST(Sm90BackwardPlan, RingsOnlyWholeSequencesThatFitTheChip) {
  EXPECT_EQ(plan_of(problem_of(8192, Mask::none))->order.schedule, Schedule::ring);
  EXPECT_EQ(plan_of(problem_of(128 * 128, Mask::none))->order.schedule, Schedule::ring);
  EXPECT_EQ(plan_of(problem_of(128 * 128 + 1, Mask::none))->order.schedule, Schedule::ascending);
  EXPECT_EQ(plan_of(problem_of(8192, Mask::causal_bottom_right))->order.schedule, Schedule::ascending);
}

TEST(Sm90BackwardPlan, LaysOutTheWorkspaceWithoutOverlap) {
  for (const std::int64_t length : {1, 64, 127, 300, 4096}) {
    for (const std::int64_t dim : {8, 64, 72, 128}) {
      AttentionProblem p = problem_of(length, Mask::causal_bottom_right);
      p.dim_qk = p.dim_v = dim;
      const auto plan = plan_of(p);
      ASSERT_NE(plan, nullptr);
      const std::int64_t queries = plan->kernel->queries, tiles = (length + queries - 1) / queries;
      EXPECT_EQ(plan->order.query_tiles, tiles);
      EXPECT_EQ(plan->order.key_tiles, (length + kKeys - 1) / kKeys);
      EXPECT_EQ(plan->ctas, p.batch * p.heads_kv * plan->order.key_tiles);
      EXPECT_GE(plan->preprocess_ctas * kPreprocessThreads / 32 * 16, p.batch * p.heads_q * tiles * queries);
      const std::int64_t places = p.batch * p.heads_q * tiles;
      std::vector<std::int64_t> ends = {plan->lse + places * queries * 4, plan->delta + places * queries * 4,
                                        plan->turns + places * kKeyWarpgroups * 4, plan->workspace_bytes};
      const std::vector<std::int64_t> begins = {plan->delta, plan->turns, plan->dq_sum, plan->workspace_bytes};
      for (std::size_t i = 0; i < ends.size(); ++i) EXPECT_LE(ends[i], begins[i]);
      if (plan->order.key_tiles > 1)
        EXPECT_GE(plan->workspace_bytes - plan->dq_sum, places * kKeyWarpgroups * kChunkBytes);
      for (const std::int64_t offset : begins) EXPECT_EQ(offset % 256, 0);
    }
  }
}

TEST(Sm90BackwardPlan, PredictsLongerTimesForMoreWork) {
  const double masked = plan_of(problem_of(8192, Mask::causal_bottom_right))->seconds;
  const double whole = plan_of(problem_of(8192, Mask::none))->seconds;
  EXPECT_GT(masked, plan_of(problem_of(4096, Mask::causal_bottom_right))->seconds);
  EXPECT_GT(whole, 1.5 * masked);
}

}  // namespace
}  // namespace fovea::cuda::sm90
