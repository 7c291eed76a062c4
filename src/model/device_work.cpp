// The memory that passes need follows from how each device splits their sums.
#include "model/device_work.h"

#include <algorithm>

#include "model/cuda/work.h"
#include "model/row_passes.h"

namespace fovea::model {
namespace {

// Enough thread blocks for every SM of a large GPU, 4 of 132, and few enough that their sums are soon added.
constexpr std::int64_t kMostNormCtas = 528;

}  // namespace

std::unique_ptr<DeviceWork> work_on(Device device, std::int64_t bytes, std::int64_t rows) {
  return device.kind == DeviceKind::cpu ? work_on_host(bytes) : work_on_gpu(device, bytes, rows);
}

std::int64_t partial_count(DeviceKind device, std::int64_t rows, std::int64_t columns) {
  return (device == DeviceKind::cpu ? row_blocks(rows) + 1 : std::min(rows, kMostNormCtas)) * columns;
}

std::int64_t square_sum_count(DeviceKind device, std::int64_t gradients) {
  return device == DeviceKind::cpu ? 0 : (gradients + kSquares - 1) / kSquares;
}

}  // namespace fovea::model
