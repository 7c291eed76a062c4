// How many partial sums each device writes, and the passes on the CPU.
#include "heads/devices.h"

#include <algorithm>

#include "heads/gpu_grid.h"
#include "heads/host.h"

namespace fovea::heads {

const Passes& passes_on_host() {
  static constexpr Passes kPasses{forward_on_host, backward_on_host, sum_on_host};
  return kPasses;
}

std::int64_t partial_rows(DeviceKind device, const Sizes& dy, const std::optional<Rotation>& rotation) {
  if (device == DeviceKind::cpu) return partial_rows_on_host(dy[2], rotation);
  return std::min(dy[0] * dy[2], kMostGpuCtas) * kGpuWarps;
}

}  // namespace fovea::heads
