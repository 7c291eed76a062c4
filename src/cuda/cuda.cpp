// The CUDA backend's part of the list.
#include "cuda/cuda.h"

#include <cuda_runtime_api.h>

#include "cuda/attention/any/plan.h"
#include "cuda/attention/any/run.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/workspace_pool.h"

namespace fovea::cuda {
namespace {

core::Plan plan_any(const AttentionProblem& problem) {
  const bool is_forward = problem.pass == Pass::forward;
  return {.workspace_bytes =
              is_forward ? any::plan_forward(problem).workspace_bytes : any::plan_backward(problem).workspace_bytes};
}

std::string tiles_any(const AttentionProblem& problem) {
  return problem.pass == Pass::forward ? any::describe(any::plan_forward(problem))
                                       : any::describe(any::plan_backward(problem));
}

constexpr core::Implementation kAll[] = {{.name = "cuda.any",
                                          .device = DeviceKind::cuda,
                                          .unavailable = unavailable,
                                          .refusal = any::refusal,
                                          .plan = plan_any,
                                          .tiles = tiles_any,
                                          .forward = any::forward,
                                          .backward = any::backward,
                                          .allocate_workspace = allocate_workspace,
                                          .release_workspace = release_workspace}};

}  // namespace

std::span<const core::Implementation> implementations() { return kAll; }

}  // namespace fovea::cuda
