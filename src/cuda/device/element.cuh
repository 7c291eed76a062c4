// One element of a tensor as a float, where the kernel is the same for every type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/tensor_ref.h"

namespace fovea::cuda {

__device__ __forceinline__ float load_element(const void* data, ElementKind kind, std::int64_t index) {
  if (kind == ElementKind::bf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
  if (kind == ElementKind::fp16) return __half2float(static_cast<const __half*>(data)[index]);
  return static_cast<const float*>(data)[index];
}

// Rounded to nearest even.
__device__ __forceinline__ void store_element(void* data, ElementKind kind, std::int64_t index, float value) {
  if (kind == ElementKind::bf16)
    static_cast<__nv_bfloat16*>(data)[index] = __float2bfloat16_rn(value);
  else if (kind == ElementKind::fp16)
    static_cast<__half*>(data)[index] = __float2half_rn(value);
  else
    static_cast<float*>(data)[index] = value;
}

}  // namespace fovea::cuda
