// Neighbouring elements of a matrix as floats: 1, 4, or 8 in bf16. Several need an address that is a multiple of their
// bytes.
#pragma once

#include <type_traits>

#include "cpu/kernels/model_kernels.h"
#include "cuda/device/element.cuh"

namespace fovea::model {

using cpu::Element;
static_assert(static_cast<int>(Element::bf16) == static_cast<int>(cuda::ElementKind::bf16));

template <Element kElement, int kCount>
__device__ __forceinline__ void load(const void* data, std::int64_t index, float (&values)[kCount]) {
  static_assert(kCount == 1 || kCount == 4 || (kCount == 8 && kElement == Element::bf16));
  if constexpr (kCount == 1) {
    values[0] = cuda::load_element(data, static_cast<cuda::ElementKind>(kElement), index);
  } else if constexpr (kElement == Element::fp32) {
    const float4 four = *reinterpret_cast<const float4*>(static_cast<const float*>(data) + index);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
  } else {
    using Words = std::conditional_t<kCount == 8, uint4, uint2>;
    const Words words = *reinterpret_cast<const Words*>(static_cast<const __nv_bfloat16*>(data) + index);
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      // A bf16 number is the upper half of an fp32 number.
      const unsigned two = reinterpret_cast<const unsigned*>(&words)[i];
      values[2 * i] = __uint_as_float(two << 16), values[2 * i + 1] = __uint_as_float(two & 0xffff0000u);
    }
  }
}

// Rounded to nearest even.
template <Element kElement, int kCount>
__device__ __forceinline__ void store(void* data, std::int64_t index, const float (&values)[kCount]) {
  static_assert(kCount == 1 || kCount == 4 || (kCount == 8 && kElement == Element::bf16));
  if constexpr (kCount == 1) {
    cuda::store_element(data, static_cast<cuda::ElementKind>(kElement), index, values[0]);
  } else if constexpr (kElement == Element::fp32) {
    *reinterpret_cast<float4*>(static_cast<float*>(data) + index) =
        make_float4(values[0], values[1], values[2], values[3]);
  } else {
    using Words = std::conditional_t<kCount == 8, uint4, uint2>;
    Words words;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const __nv_bfloat162 two = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      reinterpret_cast<unsigned*>(&words)[i] = reinterpret_cast<const unsigned&>(two);
    }
    *reinterpret_cast<Words*>(static_cast<__nv_bfloat16*>(data) + index) = words;
  }
}

}  // namespace fovea::model
