// The baselines on GPUs share the CPU's names: the tensors' device decides, and their state tells what it belongs to.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/implementation.h"
#include "baselines/cuda/baselines.h"
#include "fovea/attention.h"
#include "verification/attention/case.h"

namespace fovea {
namespace {

const bool kCudaRegistered = (attention::register_implementations(cuda::baselines::implementations()), true);

TEST(CudaBaselines, TheDeviceChoosesAmongEqualNames) {
  if (cuda::baselines::implementations().empty()) GTEST_SKIP() << "a build without CUDA";
  AttentionProblem problem = verification::attention_case("lq=64 lk=64 d=32 device=cuda").problem;
  problem.reproducible = false;
  for (const char* name : {"naive", "vectorized", "fused"}) {
    const Explanation found = explain(problem, name);
    ASSERT_EQ(found.walk.size(), 1u);
    EXPECT_EQ(found.walk[0].name, name);
    EXPECT_EQ(found.walk[0].reason.find("runs on"), std::string::npos) << found.walk[0].reason;
  }
}

TEST(CudaBaselines, EveryNameIsListedOnce) {
  const std::vector<std::string> names = attention::known_names();
  for (const auto& name : names) EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  EXPECT_EQ(std::count(names.begin(), names.end(), "naive"), 1);
}

// Their row passes begin at key 0.
TEST(CudaBaselines, MasksThatHideEarlyKeysAreRefused) {
  for (const attention::Implementation& one : cuda::baselines::implementations()) {
    AttentionProblem problem{.len_q = 64, .len_k = 64, .dim_qk = 8, .dim_v = 8};
    problem.device.kind = DeviceKind::cuda;
    for (const Mask& mask : {Mask::none, Mask::causal, Mask::window(Mask::kUnlimited, 5), Mask::window(63, 0)}) {
      problem.mask = mask;
      EXPECT_EQ(one.prepared(problem).refusal, "");
    }
    for (const Mask& mask : {Mask::window(62, 0), Mask::window_bottom_right(5, 5), Mask::window_top_left(0, 64)}) {
      problem.mask = mask;
      EXPECT_NE(one.prepared(problem).refusal.find("takes only masks that hide no early key"), std::string::npos);
    }
  }
}

TEST(CudaBaselines, PlansCountTheMatrixAndTheSavedState) {
  for (const attention::Implementation& one : cuda::baselines::implementations()) {
    AttentionProblem problem =
        verification::attention_case("b=2 hq=4 lq=1000 lk=900 d=32 dtype=bf16 device=cuda").problem;
    problem.saved_state = true;
    const core::Prepared prepared = one.prepared(problem);
    ASSERT_EQ(prepared.refusal, "");
    const core::Plan& plan = *prepared.plan;
    EXPECT_EQ(plan.saved_bytes, 64 + std::int64_t{2} * 4 * 1000 * 900 * 2);
    EXPECT_GE(plan.workspace_bytes, std::int64_t{4} * 2 * 4 * 1000 * 900);
    problem.len_k = std::int64_t{1} << 31;
    EXPECT_NE(one.prepared(problem).refusal, "");
  }
}

}  // namespace
}  // namespace fovea
