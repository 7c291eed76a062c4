// The GPU kernels of a model: their addresses, and their parameters where these are not tasks of the CPU engine.
#pragma once

#include <cstdint>

#include "cpu/kernels/model_kernels.h"
#include "model/clipping.h"

namespace fovea::model {

constexpr int kThreads = 256;  // of a thread block

// Kernels with a `count` read and write 1 or 4 neighbouring columns at once; 4 must divide the columns, and arrays begin
// at a multiple of 16 bytes.

// These take tiles of kTileColumns columns of one row; a thread block takes one tile after another.
constexpr std::int64_t kTileColumns = 1024;
const void* swiglu_kernel(cpu::Element element, int count);           // parameter: cpu::SwigluTask
const void* swiglu_backward_kernel(cpu::Element element, int count);  // parameter: cpu::SwigluBackwardTask
const void* gather_kernel();                                          // parameter: cpu::GatherTask

// Thread blocks of whole warps, each of which works on one row at a time. `inverse` is neither written nor read.
const void* rms_norm_kernel(cpu::Element element, int count);  // parameter: cpu::RmsNormTask

// Each thread block writes the sum of its rows' gradients of the weight; `task.dweight` is not written.
struct NormBackwardParameters {
  cpu::RmsNormBackwardTask task{};
  float* partials = nullptr;  // [thread blocks, columns]; no more thread blocks than rows
};
const void* rms_norm_backward_kernel(cpu::Element element, int count);

// In these a thread block works on one row at a time.
const void* cross_entropy_kernel();  // parameter: cpu::CrossEntropyTask
const void* scatter_kernel();        // parameter: cpu::ScatterTask

// to = from, rounded to bf16; `from` begins at a multiple of 16 bytes, `to` of 8.
struct RoundParameters {
  const float* from = nullptr;
  std::uint16_t* to = nullptr;
  std::int64_t count = 0;
};
const void* round_kernel();

// The sum of squares of every kSquares neighbouring values; a thread block makes one sum.
struct SquareSumParameters {
  const float* values = nullptr;
  std::int64_t count = 0;
  float* sums = nullptr;
};
const void* square_sums_kernel();

// Adds these sums in double precision and writes norm and factor; one thread block.
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
