// Neighbouring elements of a matrix as floats. Four at once need an address that is a multiple of their bytes.
#pragma once

#include "cuda/device/element.cuh"
#include "cpu/kernels/model_kernels.h"

namespace fovea::model {

using cpu::Element;
static_assert(static_cast<int>(Element::bf16) == static_cast<int>(cuda::ElementKind::bf16));

template <Element kElement, int kCount>
__device__ __forceinline__ void load(const void* data, std::int64_t index, float (&values)[kCount]) {
  static_assert(kCount == 1 || kCount == 4);
  if constexpr (kCount == 1) {
    values[0] = cuda::load_element(data, static_cast<cuda::ElementKind>(kElement), index);
  } else if constexpr (kElement == Element::fp32) {
    const float4 four = *reinterpret_cast<const float4*>(static_cast<const float*>(data) + index);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
  } else {
    const uint2 four = *reinterpret_cast<const uint2*>(static_cast<const __nv_bfloat16*>(data) + index);
    // A bf16 number is the upper half of an fp32 number.
    values[0] = __uint_as_float(four.x << 16), values[1] = __uint_as_float(four.x & 0xffff0000u);
    values[2] = __uint_as_float(four.y << 16), values[3] = __uint_as_float(four.y & 0xffff0000u);
  }
}

// Rounded to nearest even.
template <Element kElement, int kCount>
__device__ __forceinline__ void store(void* data, std::int64_t index, const float (&values)[kCount]) {
  static_assert(kCount == 1 || kCount == 4);
  if constexpr (kCount == 1) {
    cuda::store_element(data, static_cast<cuda::ElementKind>(kElement), index, values[0]);
  } else if constexpr (kElement == Element::fp32) {
    *reinterpret_cast<float4*>(static_cast<float*>(data) + index) =
        make_float4(values[0], values[1], values[2], values[3]);
  } else {
    __nv_bfloat162 four[2] = {__floats2bfloat162_rn(values[0], values[1]), __floats2bfloat162_rn(values[2], values[3])};
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(data) + index) = *reinterpret_cast<uint2*>(four);
  }
}

}  // namespace fovea::model
