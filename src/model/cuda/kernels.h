// Parameters of a model's GPU kernels, where they differ from the CPU engine's tasks, and the kernels' addresses.
#pragma once

#include <cstdint>

#include "cpu/kernels/model_kernels.h"
#include "model/clipping.h"

namespace fovea::model {

constexpr int kThreads = 256;  // of a thread block

// A tile is so many columns of one row. Thread blocks take one tile after another.
constexpr std::int64_t kTileColumns = 1024;
const void* swiglu_kernel();           // of cpu::SwigluTask
const void* swiglu_backward_kernel();  // of cpu::SwigluBackwardTask
const void* gather_kernel();           // of cpu::GatherTask

const void* cross_entropy_kernel();  // of cpu::CrossEntropyTask; a thread block per row
const void* scatter_kernel();        // of cpu::ScatterTask; a thread block per row, which must be whole rows

// to = a + b.
struct AddParameters {
  const float *a = nullptr, *b = nullptr;
  float* to = nullptr;
  std::int64_t count = 0;
};
const void* add_kernel();

// The sum of squares of each kSquares values; a thread block each.
struct SquareSumParameters {
  const float* values = nullptr;
  std::int64_t count = 0;
  float* sums = nullptr;
};
const void* square_sums_kernel();

// Adds them in double precision; one thread block.
struct ClipParameters {
  const float* sums = nullptr;
  std::int64_t count = 0;
  double largest_norm = 0;
  Clipping* clipping = nullptr;
};
const void* clip_kernel();

struct AdamWParameters {
  cpu::AdamWTask task{};
  const Clipping* clipping = nullptr;
};
const void* adamw_kernel();

}  // namespace fovea::model
