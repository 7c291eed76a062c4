// Plans of cuda.sm90's backward on the devices that plan_test.cpp describes: any machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/attention/sm90/plan.h"
#include "described_device.h"

namespace fovea::cuda::sm90 {
namespace {

// On an H200.
AttentionProblem backward_problem(std::int64_t length, Mask mask) {
  describe_device(9, 132, kH200Shared, 1);
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

std::shared_ptr<const BackwardPlan> backward_plan(const AttentionProblem& p) {
  const core::Prepared prepared = prepare(p, 0);
  EXPECT_EQ(prepared.refusal, "");
  return std::static_pointer_cast<const BackwardPlan>(prepared.plan);
}

AttentionProblem wide_problem(std::int64_t length, std::int64_t dim_qk, std::int64_t dim_v) {
  AttentionProblem p = backward_problem(length, Mask::causal_bottom_right);
  p.dim_qk = dim_qk, p.dim_v = dim_v;
  return p;
}

std::shared_ptr<const TwoPassPlan> two_pass_plan(const AttentionProblem& p) {
  const core::Prepared prepared = prepare(p, 0);
  EXPECT_EQ(prepared.refusal, "");
  return std::dynamic_pointer_cast<const TwoPassPlan>(prepared.plan);
}

void expect_refusal(const AttentionProblem& p, const std::string& part) {
  const core::Prepared prepared = prepare(p, 0);
  EXPECT_EQ(prepared.plan, nullptr);
  EXPECT_NE(prepared.refusal.find(part), std::string::npos) << prepared.refusal;
}

TEST(Sm90BackwardPlan, TellsWhyItRefuses) {
  AttentionProblem p = backward_problem(1000, Mask::none);
  p.dtype = p.result_dtype = DType::fp32;
  expect_refusal(p, "fp32");
  p = backward_problem(1000, Mask::none);
  p.dim_qk = 264;
  expect_refusal(p, "dim_qk = 264, takes multiples of 8 up to 256");
  p = backward_problem(1000, Mask::none);
  p.dim_qk = 192, p.dim_v = 130;
  expect_refusal(p, "dim_v = 130, takes multiples of 8 up to 256");
  p = backward_problem(1000, Mask::none);
  p.dim_v = 60;
  expect_refusal(p, "dim_v = 60");
  p = backward_problem(1000, Mask::none);
  p.scale = -1;
  expect_refusal(p, "scale");
  p = backward_problem(0, Mask::none);
  expect_refusal(p, "a size is 0");
  p = backward_problem(1000, Mask::none);
  p.unaligned = true;
  expect_refusal(p, "unaligned");
  p = backward_problem(std::int64_t{1} << 29, Mask::causal_bottom_right);
  p.heads_q = p.heads_kv = 1 << 10;
  expect_refusal(p, "batch x heads_q x (tiles + 1) = 2 x 1024 x (8388608 + 1), takes up to 1073741823");
  p.dim_qk = 256;
  expect_refusal(p, "batch x heads_q x (tiles + 1) = 2 x 1024 x (8388608 + 1), takes up to 1073741823");
  p = backward_problem(64, Mask::none);
  p.dim_qk = 256, p.heads_q = p.heads_kv = 1 << 10, p.batch = 1 << 19;
  expect_refusal(p, "batch x heads_q x (tiles + 1) = 524288 x 1024 x (1 + 1), takes up to 1073741823");
  p = backward_problem(1000, Mask::none);
  p.dim_qk = 256;
  describe_device(9, 132, 200 * 1024, 1);
  EXPECT_NE(prepare(p, 0).refusal.find("bytes of shared memory, 204800 may be used"), std::string::npos);
}

// A masked key tile visits too few query tiles for the ring, and two rings must fit the chip.
TEST(Sm90BackwardPlan, RingsOnlyWhereTwoFitTheChip) {
  EXPECT_EQ(backward_plan(backward_problem(8192, Mask::none))->order.schedule, Schedule::ring);
  EXPECT_EQ(backward_plan(backward_problem(66 * kKeys, Mask::none))->order.schedule, Schedule::ring);
  EXPECT_EQ(backward_plan(backward_problem(66 * kKeys + 1, Mask::none))->order.schedule, Schedule::ascending);
  EXPECT_EQ(backward_plan(backward_problem(8192, Mask::causal_bottom_right))->order.schedule, Schedule::ascending);
}

TEST(Sm90BackwardPlan, LaysOutTheWorkspaceWithoutOverlap) {
  int with_splits = 0;
  for (const std::int64_t length : {1, 64, 127, 300, 4096}) {
    for (const std::int64_t dim : {8, 64, 72, 128}) {
      AttentionProblem p = backward_problem(length, Mask::causal_bottom_right);
      p.dim_qk = p.dim_v = dim;
      const auto plan = backward_plan(p);
      ASSERT_NE(plan, nullptr);
      const std::int64_t queries = plan->kernel->queries, tiles = (length + queries - 1) / queries;
      EXPECT_EQ(plan->order.query_tiles, tiles);
      EXPECT_EQ(plan->order.key_tiles, (length + kKeys - 1) / kKeys);
      EXPECT_EQ(plan->ctas, p.batch * p.heads_kv * plan->order.splits * plan->order.key_tiles);
      EXPECT_GE(plan->preprocess_ctas * kPreprocessThreads / 32 * 16, p.batch * p.heads_q * tiles * queries);
      const std::int64_t places = p.batch * p.heads_q * tiles, tiles_of_keys = plan->order.key_tiles;
      const std::int64_t splits = plan->order.splits;
      with_splits += splits > 1;
      const std::int64_t partials = splits > 1 ? splits * p.batch * p.heads_kv * length * dim * 4 : 0;
      std::vector<std::int64_t> ends = {
          plan->lse + places * queries * 4,
          plan->delta + places * queries * 4,
          plan->turns + places * kKeyWarpgroups * 4,
          plan->dq_sum + (tiles_of_keys > 1 ? places * kKeyWarpgroups * kHalfFloats * 4 : 0),
          plan->partial_dk + partials,
          plan->partial_dv + partials};
      const std::vector<std::int64_t> begins = {plan->delta,      plan->turns,      plan->dq_sum,
                                                plan->partial_dk, plan->partial_dv, plan->workspace_bytes};
      for (std::size_t i = 0; i < ends.size(); ++i) EXPECT_LE(ends[i], begins[i]);
      for (const std::int64_t offset : begins) EXPECT_EQ(offset % 256, 0);
    }
  }
  EXPECT_GE(with_splits, 8);
}

// Multi-query attention has few key tiles. Splits of its query heads fill the chip, and each head has one split.
TEST(Sm90BackwardPlan, SplitsTheQueryHeadsOfFewKeyHeads) {
  AttentionProblem p = backward_problem(2048, Mask::none);
  p.batch = 1, p.heads_q = 40, p.heads_kv = 1;
  const auto plan = backward_plan(p);
  const KeyTileOrder& order = plan->order;
  EXPECT_EQ(order.key_tiles, 16);
  EXPECT_EQ(order.splits, 8);
  EXPECT_EQ(order.heads, 5);
  EXPECT_EQ(plan->ctas, 128);
  p.wants_dk = p.wants_dv = false;
  EXPECT_EQ(backward_plan(p)->order.splits, 1) << "dQ alone has no partials";
}

// At most kMaxSplits candidates are predicted, also if a group has a million query heads.
TEST(Sm90BackwardPlan, SplitsAHugeGroupAtOnce) {
  AttentionProblem p = backward_problem(128, Mask::none);
  p.batch = 1, p.heads_q = 1 << 20, p.heads_kv = 1;
  const KeyTileOrder order = backward_plan(p)->order;
  EXPECT_EQ(order.splits, any::kMaxSplits);
  EXPECT_EQ(order.heads, (1 << 20) / any::kMaxSplits);
}

TEST(Sm90BackwardPlan, DoesNotSplitWhatFillsTheChip) {
  for (const Mask mask : {Mask::none, Mask::causal_bottom_right}) {
    AttentionProblem p = backward_problem(16384, mask);
    EXPECT_EQ(backward_plan(p)->order.splits, 1);
    EXPECT_EQ(backward_plan(p)->order.heads, 4);
    p = backward_problem(2048, mask);
    p.heads_kv = p.heads_q;
    EXPECT_EQ(backward_plan(p)->order.splits, 1) << "a group of one head";
  }
}

TEST(Sm90BackwardPlan, PredictsLongerTimesForMoreWork) {
  const auto seconds = [](std::int64_t length, Mask mask) {
    AttentionProblem p = backward_problem(length, mask);
    p.heads_kv = p.heads_q;
    return backward_plan(p)->seconds;
  };
  const double masked = seconds(8192, Mask::causal_bottom_right);
  EXPECT_GT(masked, seconds(4096, Mask::causal_bottom_right));
  EXPECT_GT(seconds(8192, Mask::none), 1.5 * masked);
}

// More padding costs more time.
TEST(Sm90BackwardPlan, PredictsAsManyColumnsAsItPads) {
  const auto seconds = [](std::int64_t dim_qk, std::int64_t dim_v) {
    return prepare(wide_problem(4096, dim_qk, dim_v), 0).plan->seconds;
  };
  EXPECT_EQ(two_pass_plan(wide_problem(100, 136, 8))->kernels->dim_v, 128);
  EXPECT_LT(seconds(192, 128), seconds(192, 192));
  EXPECT_LT(seconds(192, 192), seconds(200, 192));
  EXPECT_GT(seconds(136, 136), seconds(128, 128));
}

// A key tile has one thread block, and so has a query tile. They write only delta and lse to the workspace.
TEST(Sm90BackwardPlan, WideHeadsTakeTwoPasses) {
  for (const std::int64_t length : {1, 64, 65, 300, 4096}) {
    for (const auto& [dim_qk, dim_v] : {std::pair{136, 136}, {192, 128}, {64, 256}, {256, 8}}) {
      const AttentionProblem p = wide_problem(length, dim_qk, dim_v);
      const auto plan = two_pass_plan(p);
      ASSERT_NE(plan, nullptr);
      EXPECT_GE(plan->kernels->dim_qk, dim_qk);
      EXPECT_GE(plan->kernels->dim_v, dim_v);
      EXPECT_EQ(plan->dkdv.ctas(), p.batch * p.heads_kv * ((length + kTwoPassRows - 1) / kTwoPassRows));
      EXPECT_EQ(plan->dq.ctas(), p.batch * p.heads_q * ((length + kDqRows - 1) / kDqRows));
      const std::int64_t rows = p.batch * p.heads_q * plan->query_tiles * kTwoPassRows;
      EXPECT_GE(plan->query_tiles * kTwoPassRows, length);
      EXPECT_GE(plan->preprocess_ctas * kPreprocessThreads / 32 * 16, rows);
      EXPECT_LE(plan->lse + rows * 4, plan->delta);
      EXPECT_LE(plan->delta + rows * 4, plan->workspace_bytes);
      EXPECT_EQ(plan->delta % 256, 0);
    }
  }
}

// A pass whose gradients nobody wants does not run.
TEST(Sm90BackwardPlan, PredictsLessForFewerGradients) {
  AttentionProblem p = wide_problem(4096, 256, 256);
  const double all = two_pass_plan(p)->seconds;
  p.wants_dq = false;
  const double keys = two_pass_plan(p)->seconds;
  p.wants_dq = true, p.wants_dk = p.wants_dv = false;
  EXPECT_LT(keys, 0.7 * all);
  EXPECT_LT(two_pass_plan(p)->seconds, 0.5 * all);
}

}  // namespace
}  // namespace fovea::cuda::sm90
