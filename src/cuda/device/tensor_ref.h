// Tensors and problem as the host hands them to kernels.
#pragma once

#include <cstdint>

namespace fovea::cuda {

enum class ElementKind : std::uint8_t { fp32, bf16, fp16 };

// Strides count elements. `vector`: every row starts at a multiple of 16 bytes.
struct TensorRef {
  void* data = nullptr;
  std::int64_t batch = 0, head = 0, row = 0;
  ElementKind kind = ElementKind::fp32;
  bool vector = false;
};

// What every kernel needs to know of the problem. Lengths fit 30 bits, so sums of two fit an int.
struct Shape {
  int window_begin, window_end;  // query i sees keys [i + window_begin, i + window_end) of [0, len_k)
  int len_q, len_k, dim_qk, dim_v;
  // Scores are |scale| times products whose sign was flipped where the scale is negative, so that the largest product
  // is the largest score. `magnitude` is |scale|, never 0, so that a hidden pair's -inf stays -inf.
  float scale, magnitude, exponent_scale;  // exponent_scale: magnitude log2(e)
  bool negate;
  int batch, heads_q, heads_kv, group;  // query head h reads key head h / group
};

}  // namespace fovea::cuda
