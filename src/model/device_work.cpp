// The memory that passes need follows from how each device splits their sums.
#include "model/device_work.h"

#include "heads/devices.h"
#include "heads/gpu_grid.h"
#include "model/cuda/work.h"
#include "model/row_passes.h"

namespace fovea::model {

std::unique_ptr<DeviceWork> work_on(Device device, std::int64_t bytes, std::int64_t rows) {
  return device.kind == DeviceKind::cpu ? work_on_host(bytes) : work_on_gpu(device, bytes, rows);
}

Sizes norm_sizes(std::int64_t rows, std::int64_t columns) {
  std::int64_t heads = heads::kGpuWarps;
  while (rows % heads != 0) heads /= 2;
  return {1, heads, rows / heads, columns};
}

std::int64_t partial_count(DeviceKind device, std::int64_t rows, std::int64_t columns) {
  if (device == DeviceKind::cpu) return (row_blocks(rows) + 1) * columns;
  return heads::partial_rows(device, norm_sizes(rows, columns), {}) * columns;
}

std::int64_t square_sum_count(DeviceKind device, std::int64_t gradients) {
  return device == DeviceKind::cpu ? 0 : (gradients + kSquares - 1) / kSquares;
}

}  // namespace fovea::model
