// The compiled kernels, one function per instance file.
#pragma once

#include <span>

#include "cuda/attention/any/parameters.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> forward_bf16();
std::span<const KernelInstance> forward_fp16();
std::span<const KernelInstance> forward_fp32();
std::span<const KernelInstance> backward_keys_bf16();
std::span<const KernelInstance> backward_keys_fp16();
std::span<const KernelInstance> backward_keys_fp32();
std::span<const KernelInstance> backward_queries_bf16();
std::span<const KernelInstance> backward_queries_fp16();
std::span<const KernelInstance> backward_queries_fp32();

}  // namespace fovea::cuda::any
