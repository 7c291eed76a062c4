// Adds the chunks' partials of dQ after backward's tasks.
#pragma once

#include "cpu/kernels/tile.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

void reduce_dq(const ReduceTask& task) {
  const Shape& shape = *task.shape;
  const int64_t rows = shape.group * shape.len_q, dim = padded(shape.dim_qk);
  const InputRows partials{task.partials, Element::fp32, 0, shape.dim_qk};
  float* sum = static_cast<float*>(task.scratch);
  for (int64_t row = task.first_row; row < task.first_row + task.rows; ++row) {
    const Interval seen = visible_keys(shape, row);
    for (int64_t d = 0; d < dim; d += kLanes) store(sum + d, zero());
    for (int64_t c = 0; c < task.chunks; ++c) {
      if (seen.end <= c * task.chunk_keys || (c + 1) * task.chunk_keys <= seen.begin || seen.begin >= seen.end)
        continue;
      float* partial = sum + dim;
      read_rows(partials, 1, c * rows + row, 1, shape.dim_qk, partial, 1, dim);
      for (int64_t d = 0; d < dim; d += kLanes) store(sum + d, add(load(sum + d), load(partial + d)));
    }
    write_rows(sum, dim, shape.scale, task.dq, shape.group, row, 1, shape.dim_qk, task.accumulate);
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
