// Tensor views as kernel parameters.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_ref.h"
#include "fovea/tensor.h"

namespace fovea::cuda {

inline ElementKind kind_of(DType type) {
  switch (type) {
    case DType::fp32:
      return ElementKind::fp32;
    case DType::bf16:
      return ElementKind::bf16;
    case DType::fp16:
      return ElementKind::fp16;
  }
  return ElementKind::fp32;
}

// Inputs become ConstTensorRef, outputs TensorRef. The stride of a dimension of size 1 is 0, whatever the view says.
template <class Pointer>
BasicTensorRef<Pointer> ref(const BasicTensorView<Pointer>& t) {
  const std::int64_t bytes = size_of(t.dtype);
  bool aligned = reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
  for (int i = 0; i < 3; ++i) aligned = aligned && (t.sizes[i] <= 1 || t.strides[i] * bytes % 16 == 0);
  const auto stride = [&t](int i) { return t.sizes[i] > 1 ? t.strides[i] : 0; };
  return {t.data, stride(0), stride(1), stride(2), kind_of(t.dtype), aligned};
}

}  // namespace fovea::cuda
