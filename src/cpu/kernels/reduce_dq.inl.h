// Adds the chunks' partials of dQ after backward's tasks.
#pragma once

#include "cpu/kernels/backward_tiles.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

bool sees(const Visibility& visible, int64_t first_key, int64_t end_key) {
  return visible.any.begin < end_key && first_key < visible.any.end;
}

// Writes a tile of dQ, sums[dim_qk][kQueries] without the scale.
void write_dq(const Shape& shape, const float* sums, float* rows, int64_t first_row, int64_t count,
              const OutputRows& dq, bool accumulate) {
  const int64_t width = padded(shape.dim_qk);
  transpose(sums, kQueries, shape.dim_qk, count, rows, width);
  write_rows(rows, width, shape.scale, dq, shape.group, first_row, count, shape.dim_qk, accumulate);
}

struct ReduceScratch {
  float *sums, *rows;
};

ReduceScratch carve_reduce(const Shape& shape, Scratch& memory) {
  ReduceScratch s{};
  s.sums = memory.take<float>(dq_tile_floats(shape));
  s.rows = memory.take<float>(kQueries * padded(shape.dim_qk));
  return s;
}

void reduce_dq(const ReduceTask& task) {
  const Shape& shape = *task.shape;
  Scratch memory{static_cast<char*>(task.scratch), 0};
  const ReduceScratch s = carve_reduce(shape, memory);
  const int64_t count = smaller(kQueries, shape.group * shape.len_q - task.first_row), size = dq_tile_floats(shape);
  Visibility visible;
  find_visible(shape, task.first_row, count, visible);
  for (int64_t i = 0; i < size; i += kLanes) store(s.sums + i, zero());
  for (int64_t c = 0; c < task.chunks; ++c) {
    if (!sees(visible, task.chunk_begins[c], task.chunk_begins[c + 1])) continue;
    const float* const partial = task.partials + c * task.partial_stride;
    for (int64_t i = 0; i < size; i += kLanes) store(s.sums + i, add(load(s.sums + i), load(partial + i)));
  }
  write_dq(shape, s.sums, s.rows, task.first_row, count, task.dq, task.accumulate);
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
