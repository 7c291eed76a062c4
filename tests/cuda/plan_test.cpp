// Plans of cuda.any for devices that are described here instead of asked: on any machine.
#include "cuda/attention/any/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cuda/attention/any/arch_spec.h"
#include "cuda/attention/any/estimate.h"
#include "cuda/attention/problem_shape.h"
#include "cuda/attention/sm90/plan.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "described_device.h"
#include "linear/cuda/linear.h"
#include "verification/attention/case.h"
#include "verification/attention/cases.h"

namespace fovea::cuda {
namespace {

int major_capability = 9, sm_count = 132, shared_limit = kH200Shared, most_resident = 2, most_clusters = INT_MAX;

}  // namespace

void describe_device(int compute_capability, int processors, int shared, int resident, int clusters) {
  major_capability = compute_capability, sm_count = processors;
  shared_limit = shared, most_resident = resident, most_clusters = clusters;
}

// In the place of the library's own, which ask the driver.
const DeviceInfo& device_info(int) {
  static DeviceInfo info;
  info = {.name = "described",
          .major = major_capability,
          .minor = 0,
          .sm_count = sm_count,
          .shared_limit = shared_limit,
          .shared_per_sm = shared_limit + 1024};
  return info;
}
int usable_shared_memory(int) { return shared_limit; }
CurrentDevice::CurrentDevice(int) {}
CurrentDevice::~CurrentDevice() = default;
int resident_ctas(const void*, int threads, int shared_bytes, int) {
  return std::min({most_resident, 2048 / threads, (shared_limit + 1024) / (shared_bytes + 1024)});
}
int resident_clusters(const void* function, int threads, int shared_bytes, int cluster, int device) {
  const int fit = sm_count * resident_ctas(function, threads, shared_bytes, device) / cluster;
  return major_capability < 9 ? 0 : std::min(fit, most_clusters);
}
bool has_code(const void*, int) { return true; }
int threads_allowed(const void*, int) { return major_capability == 9 ? any::kWarpgroup : any::kWarp; }

namespace any {
namespace {

std::int64_t divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// A plan covers every streamed tile, and every split has some unless a mask hides them.
void expect_whole(const KernelInstance* kernel, const Split& split, std::int64_t ctas, std::int64_t stationary,
                  std::int64_t streamed, std::int64_t group, const std::string& line) {
  ASSERT_NE(kernel, nullptr) << line;
  EXPECT_LE(kernel->shared_bytes, shared_limit) << line;
  EXPECT_GE(split.splits, 1) << line;
  EXPECT_EQ(split.rows, kernel->tile.rows()) << line;
  EXPECT_EQ(split.streamed_rows, kernel->tile.streamed_rows()) << line;
  EXPECT_GE(ctas, divide(stationary, split.rows) * split.splits) << line;
  const std::int64_t longest = std::max<std::int64_t>(divide(streamed, split.streamed_rows) * group, 1);
  if (split.in_cluster) {
    EXPECT_LE(split.splits, longest) << line;
    return;
  }
  EXPECT_LE(split.splits, kMaxSplits) << line;
  EXPECT_GE(std::int64_t{split.splits} * split.tiles_per_split, longest) << line;
  EXPECT_LT((std::int64_t{split.splits} - 1) * split.tiles_per_split, longest) << line;
}

// The most streamed tiles that a tile of the plan visits.
std::int64_t longest_visit(const AttentionProblem& p, const Split& split, bool rows_are_keys) {
  const auto [begin, end] = key_window(p);
  const std::int64_t stationary = rows_are_keys ? p.len_k : p.len_q, streamed = rows_are_keys ? p.len_q : p.len_k;
  std::int64_t longest = 0;
  for (std::int64_t first = 0; first < stationary; first += split.rows) {
    const std::int64_t last = std::min(first + split.rows, stationary) - 1;
    const std::int64_t from = std::max<std::int64_t>(rows_are_keys ? first - end + 1 : first + begin, 0);
    const std::int64_t to = std::min(rows_are_keys ? last - begin + 1 : last + end, streamed);
    if (from < to) longest = std::max(longest, divide(to, split.streamed_rows) - from / split.streamed_rows);
  }
  return longest * (rows_are_keys ? p.heads_q / p.heads_kv : 1);
}

// No K/V tile, or Q tile, that a tile sees may lie behind the last split.
void expect_whole_windows(const std::string& sweep) {
  for (verification::AttentionCase c : verification::attention_sweep(sweep)) {
    AttentionProblem& p = c.problem;
    p.device = {DeviceKind::cuda, 0};
    const auto expect = [&](const Split& split, bool rows_are_keys) {
      if (split.in_cluster || split.splits == 1) return;  // these divide the streamed tiles evenly
      EXPECT_GE(std::int64_t{split.splits} * split.tiles_per_split, longest_visit(p, split, rows_are_keys))
          << verification::line_of(c);
    };
    p.pass = Pass::forward;
    expect(plan_forward(p, {}).split, false);
    p.pass = Pass::backward;
    const BackwardPlan backward = plan_backward(p, {}, {});
    expect(backward.dkdv.split, true);
    expect(backward.dq.split, false);
  }
}

void expect_whole_plans(const std::string& sweep) {
  for (verification::AttentionCase c : verification::attention_sweep(sweep)) {
    AttentionProblem& p = c.problem;
    const std::string line = verification::line_of(c);
    p.device = {DeviceKind::cuda, 0};
    p.pass = Pass::forward;
    const ForwardPlan forward = plan_forward(p, {});
    expect_whole(forward.kernel, forward.split, forward.ctas, p.len_q, p.len_k, 1, line);
    p.pass = Pass::backward;
    p.wants_dq = p.wants_dk = p.wants_dv = true;
    const BackwardPlan backward = plan_backward(p, {}, {});
    const GradientPlan &dkdv = backward.dkdv, &dq = backward.dq;
    expect_whole(dkdv.kernel, dkdv.split, dkdv.ctas, p.len_k, p.len_q, p.heads_q / p.heads_kv, line);
    expect_whole(dq.kernel, dq.split, dq.ctas, p.len_q, p.len_k, 1, line);
  }
}

constexpr const char* kProblems =
    "pass=bwd b=1,3 hq=1,6 hkv=1 lq=1,200,2k,16k d=16,64,128,256 dtype=fp32,bf16 mask=none,causal";

TEST(Plan, CoversTheWorkOfEveryProblem) {
  for (const int processors : {1, 46, 132, 188}) {
    for (const int shared : {99 * 1024, 163 * 1024, kH200Shared}) {
      describe_device(shared == kH200Shared ? 9 : 8, processors, shared, 3);
      expect_whole_plans(kProblems);
    }
  }
}

TEST(Plan, CoversTheWorkOfEveryWindow) {
  for (const int processors : {1, 132}) {
    describe_device(processors == 1 ? 8 : 9, processors, kH200Shared, 3);
    expect_whole_windows(
        "pass=bwd b=1 hq=1,6 hkv=1 lq=200,2k,16k d=16,64,128 dtype=fp32,bf16 mask=window left=0,63,1023 right=0,65");
    expect_whole_windows(
        "pass=bwd b=1 hq=2 hkv=1 lq=200,3000 lk=170,4100 d=64,128 dtype=fp32,bf16 "
        "mask=window_top_left,window_bottom_right left=40,unlimited right=1,2000");
  }
}

// Empty lengths, windows that hide everything, odd sizes: each has a plan with a time.
TEST(Plan, PredictsATimeForEveryKindOfCase) {
  for (const int capability : {8, 9}) {
    describe_device(capability, 132, capability == 9 ? kH200Shared : 99 * 1024, 3);
    int planned = 0;
    for (std::uint64_t n = 0; n < 4 * verification::kCells; ++n) {
      verification::AttentionCase c = verification::random_case(3, n);
      c.problem.device = {DeviceKind::cuda, 0};
      for (const Pass pass : {Pass::forward, Pass::backward}) {
        c.problem.pass = pass;
        const core::Prepared prepared = prepare(c.problem, 0);
        if (prepared.plan == nullptr) continue;
        EXPECT_GT(prepared.plan->seconds, 0) << verification::line_of(c);
        EXPECT_LT(prepared.plan->seconds, 1e6) << verification::line_of(c);
        ++planned;
      }
    }
    EXPECT_GT(planned, 3000);
  }
}

// Forward is one kernel, and two with splits through memory: these must be faster by more than that costs.
TEST(Plan, SplitsThroughMemoryPayForTheirSecondKernel) {
  describe_device(9, 132, kH200Shared, 2);
  const AttentionProblem p =
      verification::attention_case("pass=fwd lq=8192 d=128 dtype=bf16 mask=causal device=cuda").problem;
  const auto in_memory = [](const Split& split) { return split.splits > 1 && !split.in_cluster; };
  double least = 1e18, least_in_memory = 1e18, most_extra = 0;
  for (const TileChoice& one : tile_choices(Kernel::forward, p, {})) {
    const bool combined = in_memory(one.splitting.split);
    const double extra = extra_cycles(one, 0), cycles = cycles_of(one, ElementKind::bf16, 0);
    EXPECT_EQ(extra > 0, combined);
    most_extra = std::max(most_extra, extra);
    (combined ? least_in_memory : least) = std::min(combined ? least_in_memory : least, cycles + extra);
  }
  EXPECT_GT(most_extra, 4e-6 * 1.7e9);
  EXPECT_EQ(in_memory(plan_forward(p, {}).split), least_in_memory < least);
  for (const TileChoice& one : tile_choices(Kernel::backward_dq, p, {})) EXPECT_EQ(extra_cycles(one, 0), 0);
}

// What another implementation's prediction is compared with is what decided among the tiles.
TEST(Plan, PublishesTheTimeThatItsChoiceCompared) {
  describe_device(9, 132, kH200Shared, 2);
  for (const std::string lengths : {"lq=8192", "lq=1 lk=32768", "lq=64 lk=8192"}) {
    const AttentionProblem p = verification::attention_case("pass=fwd d=128 dtype=bf16 device=cuda " + lengths).problem;
    double least = HUGE_VAL, seconds = 0;
    for (const TileChoice& one : tile_choices(Kernel::forward, p, {})) {
      const double cycles = cycles_of(one, ElementKind::bf16, 0) + extra_cycles(one, 0);
      if (cycles < least) least = cycles, seconds = seconds_of(cycles, one.kernel->tile, 0);
    }
    EXPECT_DOUBLE_EQ(plan_forward(p, {}).seconds, seconds) << lengths;
    EXPECT_GE(seconds, least / arch_spec(0).clock_hz) << lengths;
  }
}

// A driver may answer that no thread block of a tile finds a place. There is a plan nevertheless; launching says
// what is wrong.
TEST(Plan, HasAKernelWhereNoThreadBlockIsResident) {
  describe_device(9, 132, kH200Shared, 0);
  expect_whole_plans(kProblems);
}

TEST(Plan, AGpuThatIsTooOldIsRefused) {
  describe_device(7, 40, 64 * 1024, 2);
  EXPECT_EQ(prepare(verification::attention_case("pass=fwd lq=128 d=64 device=cuda").problem, 0).refusal,
            "described has compute capability 7.0, the kernels need 8.0 or higher");
  describe_device(8, 40, 99 * 1024, 2);
  EXPECT_EQ(prepare(verification::attention_case("pass=fwd lq=128 d=64 device=cuda").problem, 0).refusal, "");
}

// fp32 kernels cannot hold these scales, nor their products with log2(e).
TEST(Plan, ScalesBeyondFp32AreRefused) {
  describe_device(9, 132, kH200Shared, 2);
  for (const double scale : {1e39, 2.4e38, -2.4e38, 8.1e-39, -1e-300, 0.0, 2.3e38, -2.3e38, 8.2e-39, -8.2e-39, 0.125}) {
    const bool fits = scale == 0 || (std::abs(scale) > 8.15e-39 && std::abs(scale) < 2.35e38);
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      AttentionProblem p = verification::attention_case("pass=e2e b=1 hq=2 lq=256 d=64 dtype=bf16 device=cuda").problem;
      p.pass = pass;
      p.scale = scale;
      for (const auto& refusal : {prepare(p, 0).refusal, sm90::prepare(p, 0).refusal}) {
        if (refusal.find("takes positive scales") != std::string::npos) continue;
        EXPECT_EQ(refusal.find("takes a scale of 0, or of 8.2e-39 to 2.3e38 in size") == 0, !fits) << scale << refusal;
        EXPECT_EQ(refusal.empty(), fits) << scale << refusal;
      }
      if (!fits) continue;
      const Shape shape = shape_of(p);
      EXPECT_EQ(shape.scale, static_cast<float>(scale));
      EXPECT_EQ(shape.negate, scale < 0);
      EXPECT_EQ(shape.abs_scale, scale == 0 ? std::numeric_limits<float>::denorm_min() : std::abs(shape.scale));
      EXPECT_GT(shape.scale_log2e, 0);
      EXPECT_TRUE(std::isfinite(shape.scale_log2e));
    }
  }
}

// The largest product that fp32 holds makes a score that is nothing beside 1, and a masked pair still has none.
TEST(Plan, AScaleOfZeroMakesNoScores) {
  const AttentionProblem p = verification::attention_case("pass=fwd lq=256 d=64 scale=0 device=cuda").problem;
  const Shape shape = shape_of(p);
  for (const float factor : {shape.abs_scale, shape.scale_log2e}) {
    EXPECT_LT(std::numeric_limits<float>::max() * factor, 1e-6f);
    EXPECT_EQ(-std::numeric_limits<float>::infinity() * factor, -std::numeric_limits<float>::infinity());
  }
  EXPECT_EQ(shape.scale, 0);
}

// On an H200, with 15 clusters at once, splits through memory were predicted 5 % faster. They took 9 % longer, and the
// host 30 % longer.
TEST(Plan, GradientsOfOneShortHeadAreAddedWithinClusters) {
  describe_device(9, 132, kH200Shared, 2);
  most_clusters = 15;
  const core::Prepared prepared =
      prepare(verification::attention_case("pass=bwd hq=1 lq=512 d=128 dtype=fp32 mask=causal device=cuda").problem, 0);
  ASSERT_NE(prepared.plan, nullptr);
  EXPECT_LT(prepared.plan->workspace_bytes, 16 * 1024) << "partials in memory";
}

// A grid has up to 2^31 - 1 thread blocks, of 16 rows or for one of two gradients; without query heads, too.
TEST(Plan, GridsThatAreTooLargeAreRefused) {
  describe_device(9, 132, kH200Shared, 2);
  const auto refusal_of = [](const std::string& line) {
    AttentionProblem p = verification::attention_case(line + " device=cuda").problem;
    if (p.heads_q == 0) p.heads_kv = 2048;
    return prepare(p, 0).refusal;
  };
  for (const std::string pass : {"pass=fwd", "pass=bwd"}) {
    EXPECT_EQ(refusal_of(pass + " b=1048576 hq=0 lq=1 lk=1 d=1"),
              "batch x heads_kv x (tiles + 1) = 1048576 x 2048 x 2, takes up to 1073741823");
    EXPECT_EQ(refusal_of(pass + " b=524288 hq=1024 lq=33 lk=1 d=1"),
              "batch x heads_q x (tiles + 1) = 524288 x 1024 x 3, takes up to 1073741823");
    EXPECT_EQ(refusal_of(pass + " b=1099511627776 hq=0 lq=0 lk=0 d=1"),
              "batch x heads_kv x (tiles + 1) = 1099511627776 x 2048 x 1, takes up to 1073741823");
    EXPECT_EQ(refusal_of(pass + " b=131072 hq=0 lq=1 lk=1 d=1"), "");
    EXPECT_EQ(refusal_of(pass + " b=131072 hq=2048 lq=1 lk=1 d=1"), "");
  }
}

LinearProblem linear_problem(std::int64_t batch, std::int64_t heads, std::int64_t dim) {
  LinearProblem p;
  p.pass = Pass::backward;
  p.batch = batch;
  p.heads_out = heads;
  p.dim_out = dim;
  p.wants_dbias = true;
  return p;
}

TEST(Plan, GridsOfLinearThatAreTooLargeAreRefused) {
  const auto refusals = [](const LinearProblem& p) {
    std::vector<std::string> all;
    for (const linear::Implementation& one : linear::cuda_implementations())
      all.push_back(one.prepare(p, one.variant).refusal);
    return all;
  };
  const auto both = [](const std::string& text) { return std::vector<std::string>{text, text}; };
  EXPECT_EQ(refusals(linear_problem(1 << 30, 1 << 10, 1)),
            both("takes up to 2^31 - 1 products, needs up to 1099511627776"));
  EXPECT_EQ(refusals(linear_problem(1 << 30, 1, 1 << 30)),
            both("takes dbias of up to 2^31 - 1 tiles of 512 x 32, got 70368744177664"));
  const std::vector<std::string> only_own{"", "takes results of up to 2^31 - 1 tiles of 64 x 64, got 2199023255552"};
  LinearProblem narrow = linear_problem(1 << 20, 1, 1 << 27);
  narrow.wants_dbias = false;
  EXPECT_EQ(refusals(narrow), only_own);
  EXPECT_EQ(refusals(linear_problem(1 << 20, 16, 64)), both(""));
}

// wgmma tiles are taken where there is wgmma; elsewhere the same tile is slower than one of more rows.
TEST(Plan, ChoosesWgmmaTilesWhereTheyAreFast) {
  for (const std::string dim : {"64", "128"}) {
    for (const int capability : {8, 9, 12}) {
      describe_device(capability, 132, kH200Shared, 4);
      verification::AttentionCase c =
          verification::attention_sweep("pass=fwd b=4 hq=16 lq=4k dtype=bf16 mask=none d=" + dim).front();
      c.problem.device = {DeviceKind::cuda, 0};
      const ForwardPlan plan = plan_forward(c.problem, {});
      ASSERT_NE(plan.kernel, nullptr);
      EXPECT_EQ(plan.kernel->tile.warpgroup, capability == 9) << "d=" << dim << ", capability " << capability;
    }
  }
}

}  // namespace
}  // namespace any
}  // namespace fovea::cuda
