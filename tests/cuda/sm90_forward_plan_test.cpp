// Plans of cuda.sm90's forward on the devices that plan_test.cpp describes: any machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cuda/attention/any/plan.h"
#include "cuda/attention/sm90/plan.h"
#include "described_device.h"
#include "verification/attention/case.h"
#include "verification/attention/cases.h"

namespace fovea::cuda::sm90 {
namespace {

AttentionProblem on_gpu(AttentionProblem p) {
  p.device = {DeviceKind::cuda, 0};
  return p;
}
AttentionProblem problem_of(const std::string& line) {
  return on_gpu(verification::attention_sweep(line).front().problem);
}

const ForwardPlan& plan_of(const core::Prepared& prepared) { return static_cast<const ForwardPlan&>(*prepared.plan); }

TEST(HopperPlan, RefusesWhatItsKernelsDoNotTake) {
  describe_device(9, 132, kH200Shared, 1);
  const auto refusal = [](const std::string& line) { return prepare(problem_of(line), 0).refusal; };
  EXPECT_EQ(refusal("pass=fwd b=1 hq=2 lq=100 d=64 dtype=fp16"), "");
  EXPECT_EQ(refusal("pass=fwd b=1 hq=2 lq=100 d=256 dv=8 dtype=bf16 mask=causal"), "");
  EXPECT_EQ(refusal("pass=bwd b=1 hq=2 lq=100 d=64 dtype=fp16"), "");
  EXPECT_EQ(refusal("pass=fwd b=1 hq=2 lq=100 d=64 dtype=fp32"), "dtype fp32, takes bf16 and fp16");
  EXPECT_EQ(refusal("pass=fwd b=1 hq=2 lq=100 d=63 dtype=fp16"), "dim_qk = 63, takes multiples of 8 up to 256");
  EXPECT_EQ(refusal("pass=fwd b=1 hq=2 lq=100 d=64 dv=264 dtype=fp16"), "dim_v = 264, takes multiples of 8 up to 256");
  EXPECT_EQ(refusal("pass=fwd b=1 hq=2 lq=100 d=64 scale=-1 dtype=fp16"), "scale -1.000000, takes positive scales");
  AttentionProblem wide = problem_of("pass=fwd b=1 hq=2 lq=100 d=64 dtype=fp16");
  wide.result_dtype = DType::fp32;
  EXPECT_EQ(prepare(wide, 0).refusal, "");
  AttentionProblem unaligned = problem_of("pass=fwd b=1 hq=2 lq=100 d=64 dtype=fp16");
  unaligned.unaligned = true;
  EXPECT_NE(prepare(unaligned, 0).refusal.find("unaligned"), std::string::npos);
  describe_device(9, 132, 99 * 1024, 1);
  EXPECT_EQ(refusal("pass=fwd b=1 hq=2 lq=100 d=256 dtype=fp16"), "no tile fits 101376 bytes of shared memory");
  describe_device(8, 132, kH200Shared, 1);
  EXPECT_EQ(refusal("pass=fwd b=1 hq=2 lq=100 d=64 dtype=fp16"),
            "described has compute capability 8.0, runs on 9.0 only");
}

TEST(HopperPlan, CountsEveryQueryTileOnce) {
  describe_device(9, 132, kH200Shared, 1);
  for (const auto& c :
       verification::attention_sweep("pass=fwd b=1,3 hq=6 hkv=2 lq=1,64,65,1000 lk=1000 d=64,128,192,256 "
                                     "dtype=bf16 mask=none,causal_bottom_right")) {
    const AttentionProblem p = on_gpu(c.problem);
    const core::Prepared prepared = prepare(p, 0);
    ASSERT_EQ(prepared.refusal, "");
    const ForwardPlan& plan = plan_of(prepared);
    const std::int64_t queries = plan.packing.queries, sequences = p.batch * p.heads_q / plan.packing.heads;
    const std::int64_t numbers = (p.len_q + queries - 1) / queries * sequences * plan.split.splits;
    EXPECT_LE(plan.packing.heads * queries, plan.kernel->tile.rows());
    EXPECT_EQ(plan.order.numbers, numbers);
    EXPECT_EQ(plan.ctas, plan.split.in_cluster ? numbers : std::min<std::int64_t>(numbers, 132));
    EXPECT_GE(plan.kernel->tile.dim_qk, p.dim_qk);
    EXPECT_GE(plan.kernel->tile.dim_v, p.dim_v);
    EXPECT_EQ(plan.has_counter || plan.combines_in_memory(), plan.workspace_bytes > 0);
    EXPECT_GT(plan.seconds, 0);
  }
}

// Every split of few query rows has keys, and together they have all. The rows of a group share a tile. Without
// clusters they combine in memory.
TEST(HopperPlan, SplitsTheKeysOfFewQueries) {
  describe_device(9, 132, kH200Shared, 1, 0);
  for (const auto& c : verification::attention_sweep("pass=fwd hq=32 hkv=8 lq=1,5 lk=10007,32k d=64,128,256 "
                                                     "dtype=bf16,fp16")) {
    const AttentionProblem p = on_gpu(c.problem);
    const core::Prepared prepared = prepare(p, 0);
    ASSERT_EQ(prepared.refusal, "");
    const ForwardPlan& plan = plan_of(prepared);
    const std::int64_t keys = std::int64_t{plan.kernel->tile.keys} * plan.split.tiles_per_split;
    EXPECT_EQ(plan.packing.heads, 4);
    EXPECT_GT(plan.split.splits, 1);
    EXPECT_GE(keys * plan.split.splits, p.len_k);
    EXPECT_LT(keys * (plan.split.splits - 1), p.len_k);
    const std::int64_t rows = plan.split.splits * p.heads_q * p.len_q;
    EXPECT_GE(plan.partial_state - plan.partial_out, rows * p.dim_v * 4);
    EXPECT_GE(plan.workspace_bytes - plan.partial_state, rows * 8);
  }
}

// The chip has 15 clusters of 8, as an H200. The splits of a few query rows form clusters, which need no workspace.
TEST(HopperPlan, SplitsTheKeysOfFewQueriesOverClusters) {
  describe_device(9, 132, kH200Shared, 1, 15);
  for (const auto& c :
       verification::attention_sweep("pass=fwd hq=32 hkv=8 lq=1,5 lk=4k d=64,128,256 dtype=bf16,fp16")) {
    const core::Prepared prepared = prepare(on_gpu(c.problem), 0);
    ASSERT_EQ(prepared.refusal, "");
    const ForwardPlan& plan = plan_of(prepared);
    EXPECT_TRUE(plan.split.in_cluster);
    EXPECT_EQ(plan.packing.heads, 4);
    EXPECT_LE(plan.split.splits, 16);
    EXPECT_EQ(plan.ctas % plan.split.splits, 0);
    EXPECT_EQ(plan.workspace_bytes, 0);
    EXPECT_NE(plan.tiles.find("clusters of " + std::to_string(plan.split.splits)), std::string::npos);
  }
}

// Where reading K and V takes the time, 128 thread blocks read faster than 96. The SMs left over do not pay for more
// splits (docs/kernels/sm90_forward_notebook.md, "reading alone").
TEST(HopperPlan, DecodeTakesTheDivisionThatReadsFastest) {
  describe_device(9, 132, kH200Shared, 1, 0);
  const auto plan = [](const char* batch) {
    return prepare(problem_of(std::string("pass=fwd hq=32 hkv=8 lq=1 lk=32k d=128 dtype=bf16 b=") + batch), 0);
  };
  const core::Prepared four = plan("4"), sixteen = plan("16");
  EXPECT_EQ(plan_of(four).split.splits, 4);
  EXPECT_EQ(plan_of(sixteen).split.splits, 1);
}

// 187.7 and 203.7 us without a mask, 172 and 147 us with one, in tiles of 192 and 128 rows.
TEST(HopperPlan, ShortSequencesHaveTheirOwnTileUnderAMask) {
  describe_device(9, 132, kH200Shared, 1);
  const auto rows = [](const char* mask) {
    return plan_of(prepare(problem_of(std::string("pass=fwd b=32 hq=32 lq=512 d=64 dtype=bf16 mask=") + mask), 0))
        .kernel->tile.rows();
  };
  EXPECT_EQ(rows("none"), 192);
  EXPECT_EQ(rows("causal"), 128);
}

// The next query tiles' K and V are prefetched if they fit the L2 cache.
TEST(HopperPlan, PrefetchesNoMoreThanTheCacheHolds) {
  describe_device(9, 132, kH200Shared, 1);
  const auto prefetches = [](const std::string& line) {
    return plan_of(prepare(problem_of("pass=fwd dtype=bf16 d=128 " + line), 0)).order.prefetches;
  };
  EXPECT_TRUE(prefetches("b=32 hq=16 lq=512"));
  EXPECT_TRUE(prefetches("b=4 hq=16 lq=8k"));
  EXPECT_FALSE(prefetches("b=64 hq=32 hkv=8 lq=1 lk=2k")) << "1 MB for each thread block";
}

// Large grids run here, and splits of many keys; a short sequence of one head does not.
TEST(HopperPlan, PredictsWhereItIsFaster) {
  describe_device(9, 132, kH200Shared, 2);
  const auto faster = [](const std::string& line) {
    const AttentionProblem p = problem_of(line);
    return prepare(p, 0).plan->seconds < any::prepare(p, 0).plan->seconds;
  };
  for (const std::string dim : {"64", "128", "256"}) {
    for (const std::string mask : {"none", "causal"}) {
      EXPECT_TRUE(faster("pass=fwd b=16 hq=16 lq=1k dtype=bf16 d=" + dim + " mask=" + mask)) << dim << mask;
      EXPECT_TRUE(faster("pass=fwd b=2 hq=16 lq=8k dtype=bf16 d=" + dim + " mask=" + mask)) << dim << mask;
    }
    EXPECT_TRUE(faster("pass=fwd b=1 hq=32 hkv=8 lq=1 lk=32k dtype=bf16 d=" + dim)) << dim;
    EXPECT_FALSE(faster("pass=fwd b=1 hq=1 lq=1k dtype=bf16 mask=causal d=" + dim)) << dim;
  }
}

// Calls with splits in memory, as one H200 took them (docs/kernels/sm90_forward_notebook.md, step 5).
TEST(HopperPlan, PredictsTheTimesOfSplits) {
  describe_device(9, 132, kH200Shared, 2, 0);
  const struct {
    const char* problem;
    double seconds;
  } kMeasured[] = {{"b=1 hq=32 hkv=8 lq=1 lk=8k d=64", 18.98e-6},   {"b=1 hq=32 hkv=8 lq=1 lk=32k d=64", 34.90e-6},
                   {"b=4 hq=32 hkv=8 lq=1 lk=32k d=128", 149.9e-6}, {"b=1 hq=32 hkv=8 lq=1 lk=8k d=256", 42.88e-6},
                   {"b=1 hq=32 hkv=8 lq=1 lk=32k d=256", 92.61e-6}, {"b=1 hq=16 lq=512 lk=32k d=128", 216.4e-6}};
  for (const auto& [line, seconds] : kMeasured) {
    const core::Prepared prepared = prepare(problem_of(std::string("pass=fwd dtype=bf16 ") + line), 0);
    ASSERT_EQ(prepared.refusal, "");
    EXPECT_GT(plan_of(prepared).split.splits, 1) << line;
    EXPECT_NEAR(prepared.plan->seconds / seconds, 1, 0.13) << line;
  }
}

std::int64_t tiles_that_are_seen(const AttentionProblem& p, std::int64_t first, std::int64_t last, std::int64_t keys) {
  const KeyWindow window = key_window(p);
  std::int64_t least = p.len_k, most = -1;
  for (std::int64_t query = first; query <= last; ++query) {
    const std::int64_t begin = std::max<std::int64_t>(query + window.begin, 0);
    const std::int64_t end = std::min(query + window.end, p.len_k);
    if (begin >= end) continue;
    least = std::min(least, begin / keys);
    most = std::max(most, (end - 1) / keys);
  }
  return std::max<std::int64_t>(most - least + 1, 0);
}

// No split takes the keys that the others leave. So they have room for all tiles that a query of the tile sees.
TEST(HopperPlan, SplitsHaveRoomForTheKeysOfEveryQueryTile) {
  describe_device(9, 132, kH200Shared, 1);
  int with_splits = 0;
  for (const std::string mask :
       {"none", "causal_top_left", "causal_bottom_right", "window_bottom_right left=2500 right=9"}) {
    for (const auto& c : verification::attention_sweep(
             "pass=fwd hq=4 hkv=1,2,4 lq=1,7,64,300 lk=130,6000,20001 d=64,128,192,256 dtype=bf16 mask=" + mask)) {
      const AttentionProblem p = on_gpu(c.problem);
      const core::Prepared prepared = prepare(p, 0);
      ASSERT_EQ(prepared.refusal, "");
      const ForwardPlan& plan = plan_of(prepared);
      const std::int64_t keys = plan.kernel->tile.keys, queries = plan.packing.queries;
      with_splits += plan.split.splits > 1;
      EXPECT_EQ(plan.split.rows, queries);
      EXPECT_EQ(plan.split.streamed_rows, keys);
      for (std::int64_t first = 0; first < p.len_q; first += queries) {
        const std::int64_t seen = tiles_that_are_seen(p, first, std::min(first + queries, p.len_q) - 1, keys);
        EXPECT_GE(std::int64_t{plan.split.splits} * plan.split.tiles_per_split, seen);
      }
    }
  }
  EXPECT_GT(with_splits, 50);
}

}  // namespace
}  // namespace fovea::cuda::sm90
