// The list of the CUDA backend's implementations.
#include "cuda/cuda.h"

#include "core/never_destroyed.h"
#include "cuda/attention/any/plan.h"
#include "cuda/attention/any/run.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/workspace_pool.h"

namespace fovea::cuda {
namespace {

attention::Implementation any_gpu() {
  return {.name = "cuda.any",
          .device = DeviceKind::cuda,
          .unavailable = [](int) { return unavailable(); },
          .prepare = any::prepare,
          .forward = any::forward,
          .backward = any::backward,
          .allocate_workspace = allocate_workspace,
          .release_workspace = release_workspace};
}

}  // namespace

std::span<const attention::Implementation> implementations() {
  static const auto& any = core::never_destroyed<attention::Implementation>(any_gpu());
  return {&any, 1};
}

}  // namespace fovea::cuda
