// The GPU kernels of a model: their addresses, and their parameters where these are not tasks of the CPU engine.
#pragma once

#include <cstdint>

#include "cpu/kernels/model_kernels.h"
#include "model/clipping.h"

namespace fovea::model {

constexpr int kThreads = 256;  // of a thread block

// With `wide` a thread reads and writes vectors of 16 bytes, otherwise one column at a time. Arrays of a wide kernel
// begin at a multiple of 16 bytes, and wide_columns() of their type divides the columns.
constexpr int wide_columns(cpu::Element element) { return element == cpu::Element::fp32 ? 4 : 8; }

// A thread block takes one tile after another: neighbouring columns of one row, one vector or column a thread.
constexpr int kTileThreads = 512;                                     // at most; whole warps
const void* swiglu_kernel(cpu::Element element, bool wide);           // parameter: cpu::SwigluTask
const void* swiglu_backward_kernel(cpu::Element element, bool wide);  // parameter: cpu::SwigluBackwardTask
const void* gather_kernel(bool wide);                                 // parameter: cpu::GatherTask

// `held`: each row is held in the registers of `row_warps` neighbouring warps: at most 4 * 32 * kHeldVectors columns a
// warp. 4 divides the columns, and arrays begin at a multiple of 16 bytes. `row_warps` divides the warps of a thread
// block. Not held: a thread block works on one row at a time. `inverse` is neither written nor read.
constexpr int kHeldVectors = 8;
struct NormParameters {
  cpu::RmsNormTask task{};
  unsigned row_warps = 0;
};
const void* rms_norm_kernel(cpu::Element element, bool held);

// Each thread block writes the sum of its rows' gradients of the weight; `task.dweight` is not written. If rows are
// held, dynamic shared memory has `columns` floats.
struct NormBackwardParameters {
  cpu::RmsNormBackwardTask task{};
  float* partials = nullptr;  // [thread blocks, columns]; no more thread blocks than rows
  unsigned row_warps = 0;
};
const void* rms_norm_backward_kernel(cpu::Element element, bool held);

// In these a thread block works on one row at a time.
constexpr int kLossThreads = 512, kHeldLogits = 32;                 // a thread holds so many of a row
const void* cross_entropy_kernel(bool wide, std::int64_t columns);  // parameter: cpu::CrossEntropyTask
const void* scatter_kernel();                                       // parameter: cpu::ScatterTask

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
