// The CUDA backend's part of the list.
#include "cuda/cuda.h"

#include <cuda_runtime_api.h>

#include "cuda/any/plan.h"
#include "cuda/any/run.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/workspace_pool.h"

namespace fovea::cuda {
namespace {

core::Plan plan_any(const AttentionProblem& problem) {
  if (problem.pass == Pass::forward) {
    const any::ForwardPlan plan = any::plan_forward(problem);
    return {.tiles = any::describe(plan), .workspace_bytes = plan.workspace_bytes};
  }
  const any::BackwardPlan plan = any::plan_backward(problem);
  return {.tiles = any::describe(plan), .workspace_bytes = plan.workspace_bytes};
}

constexpr core::Implementation kAll[] = {{.name = "cuda.any",
                                          .device = DeviceKind::cuda,
                                          .unavailable = unavailable,
                                          .refusal = any::refusal,
                                          .plan = plan_any,
                                          .forward = any::forward,
                                          .backward = any::backward,
                                          .allocate_workspace = allocate_workspace,
                                          .release_workspace = release_workspace}};

}  // namespace

std::span<const core::Implementation> implementations() { return kAll; }

}  // namespace fovea::cuda
