// Every compiled tile against the reference: unsplit, with splits through memory, with clusters; also tiles that the
// plans of this GPU never choose.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "cuda/attention/any/run.h"
#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "device_call.h"
#include "fovea/error.h"
#include "on_device.h"
#include "verification/attention/case.h"
#include "verification/attention/check.h"

namespace fovea::cuda {
namespace {

using any::Kernel, any::KernelInstance, any::PlanOverride;

// Rows of whole chunks and lengths of no whole tile; neither, with more than half of the columns filled; whole chunks
// of keys or of values only.
std::vector<verification::AttentionCase> cases_of(const KernelInstance& one, const std::string& dtype) {
  const std::string dim = std::to_string(one.tile.dim), less = std::to_string(one.tile.dim * 3 / 4 + 1),
                    odd = std::to_string(one.tile.dim - 1);
  const std::string common = "pass=bwd b=1 hq=2 hkv=1 dtype=" + dtype;
  return {verification::attention_case(common + " lq=150 lk=301 mask=none d=" + dim),
          verification::attention_case(common + " lq=201 lk=233 mask=causal_bottom_right d=" + less),
          verification::attention_case(common + " lq=233 lk=301 mask=window_bottom_right left=70 right=9 d=" + dim),
          verification::attention_case(common + " lq=70 lk=201 mask=none d=" + dim + " dv=" + odd),
          verification::attention_case(common + " lq=70 lk=201 mask=none d=" + odd + " dv=" + dim)};
}

// The splits that a tile can have on this device: tiles with split_warps have none, and thread blocks that compute
// different gradients form no cluster.
std::vector<PlanOverride> overrides_of(const KernelInstance& one) {
  std::vector<PlanOverride> all{{.kernel = &one, .splits = 1}};
  if (one.tile.split_warps > 1) return all;
  all.push_back({.kernel = &one, .splits = 3});
  if (one.separate_dk_dv || resident_ctas(one.function, one.tile.threads(), one.shared_bytes, 0) == 0) return all;
  for (const int cluster : {2, 8}) {
    if (resident_clusters(one.function, one.tile.threads(), one.shared_bytes, cluster, 0) > 0)
      all.push_back({.kernel = &one, .splits = cluster, .in_cluster = true});
  }
  return all;
}

std::string text_of(Kernel kernel, const PlanOverride& plan_override, const verification::AttentionCase& c) {
  constexpr const char* kNames[] = {"forward", "backward_dkdv", "backward_dq"};
  const TileShape& tile = plan_override.kernel->tile;
  return std::string(kNames[static_cast<int>(kernel)]) + " " + std::to_string(tile.rows()) + "x" +
         std::to_string(tile.streamed_rows()) + ", " + std::to_string(plan_override.splits) +
         (plan_override.in_cluster ? " in a cluster" : " splits") + ", " + verification::line_of(c);
}

template <class Plan, class Tensors>
void run(const Plan& plan, const Tensors& tensors) {
  const DeviceMemory workspace(std::max<std::int64_t>(plan.workspace_bytes, 256));
  any::enqueue(plan, tensors, {.workspace = workspace.data()});
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

verification::Verdict verdict_on_forward(const PlanOverride& plan_override, verification::AttentionCase c) {
  DeviceCall call(c);
  c.problem.device = {DeviceKind::cuda, 0};
  c.problem.pass = Pass::forward;
  run(any::plan_forward(c.problem, plan_override), call.forward);
  return verification::check_forward(c.problem, call.fetch().forward(), c.seed);
}

// Of the kernel's gradients.
verification::Verdict verdict_on_backward(Kernel kernel, const PlanOverride& plan_override,
                                          verification::AttentionCase c) {
  const bool of_keys = kernel == Kernel::backward_dkdv;
  const auto wanted = [of_keys](BackwardTensors tensors) {
    if (of_keys) tensors.dq = {};
    if (!of_keys) tensors.dk = tensors.dv = {};
    return tensors;
  };
  DeviceCall call(c);
  attention_forward(call.forward, call.options);
  c.problem.device = {DeviceKind::cuda, 0};
  c.problem.pass = Pass::backward;
  c.problem.wants_dq = !of_keys, c.problem.wants_dk = c.problem.wants_dv = of_keys;
  run(any::plan_backward(c.problem, plan_override, plan_override), wanted(call.backward));
  return verification::check_backward(c.problem, wanted(call.fetch().backward()), c.seed);
}

// Empty, or what is wrong.
std::string wrong_answer(Kernel kernel, const PlanOverride& plan_override, const verification::AttentionCase& c) {
  try {
    const verification::Verdict verdict = kernel == Kernel::forward ? verdict_on_forward(plan_override, c)
                                                                    : verdict_on_backward(kernel, plan_override, c);
    return verdict.ok ? "" : "wrong: " + verdict.reason();
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

int check_tiles() {
  int passed = 0, failed = 0;
  for (const Kernel kernel : {Kernel::forward, Kernel::backward_dkdv, Kernel::backward_dq}) {
    for (const auto& [kind, dtype] :
         {std::pair{ElementKind::fp32, "fp32"}, {ElementKind::bf16, "bf16"}, {ElementKind::fp16, "fp16"}}) {
      for (const KernelInstance& one : any::instances(kernel, kind)) {
        if (one.shared_bytes > usable_shared_memory(0)) continue;
        for (const verification::AttentionCase& c : cases_of(one, dtype)) {
          for (const PlanOverride& plan_override : overrides_of(one)) {
            const std::string wrong = wrong_answer(kernel, plan_override, c);
            ++(wrong.empty() ? passed : failed);
            if (!wrong.empty()) std::printf("TILE %s: %s\n", text_of(kernel, plan_override, c).c_str(), wrong.c_str());
          }
        }
      }
    }
  }
  std::printf("tiles: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
