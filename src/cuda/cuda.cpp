// The list of the CUDA backend's implementations.
#include "cuda/cuda.h"

#include <array>

#include "core/never_destroyed.h"
#include "cuda/attention/any/plan.h"
#include "cuda/attention/any/run.h"
#include "cuda/attention/sm90/plan.h"
#include "cuda/attention/sm90/run.h"
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

attention::Implementation hopper() {
  return {.name = "cuda.sm90",
          .device = DeviceKind::cuda,
          .unavailable = [](int) { return unavailable(); },
          .prepare = sm90::prepare,
          .forward = sm90::forward,
          .backward = sm90::backward,
          .allocate_workspace = allocate_workspace,
          .release_workspace = release_workspace};
}

}  // namespace

std::span<const attention::Implementation> implementations() {
  static const auto& all = core::never_destroyed<std::array<attention::Implementation, 2>>(
      std::array<attention::Implementation, 2>{hopper(), any_gpu()});
  return all;
}

}  // namespace fovea::cuda
