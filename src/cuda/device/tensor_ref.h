// Tensors and problem sizes as kernel parameters.
#pragma once

#include <cstdint>

namespace fovea::cuda {

enum class ElementKind : std::uint8_t { fp32, bf16, fp16 };

// A [batch, heads, length, dim] tensor. Strides count elements; dim has stride 1. `aligned`: every row starts at a
// multiple of 16 bytes.
template <class Pointer>
struct BasicTensorRef {
  Pointer data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  ElementKind kind = ElementKind::fp32;
  bool aligned = false;
};

using TensorRef = BasicTensorRef<void*>;             // outputs
using ConstTensorRef = BasicTensorRef<const void*>;  // inputs

// The problem, as every kernel needs it. Lengths fit 30 bits, so a sum of two fits an int.
struct Shape {
  int window_begin, window_end;  // query i sees keys [i + window_begin, i + window_end) of [0, len_k)
  int len_q, len_k, dim_qk, dim_v;
  // Kernels compute score = abs_scale * product, with product = -q.k if the scale is negative (`negate`). So the
  // largest product has the largest score. abs_scale is never 0, so the -inf of a masked pair stays -inf.
  float scale, abs_scale, scale_log2e;  // scale_log2e = abs_scale * log2(e)
  bool negate;
  int batch, heads_q, heads_kv, group;  // query head h reads key head h / group
};

}  // namespace fovea::cuda
