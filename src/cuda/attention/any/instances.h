// The kernel instances, one function per instance file.
#pragma once

#include <span>

#include "cuda/attention/any/parameters.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> forward_bf16();
std::span<const KernelInstance> forward_fp16();
std::span<const KernelInstance> forward_fp32();
std::span<const KernelInstance> backward_dkdv_bf16();
std::span<const KernelInstance> backward_dkdv_fp16();
std::span<const KernelInstance> backward_dkdv_fp32();
std::span<const KernelInstance> backward_dq_bf16();
std::span<const KernelInstance> backward_dq_fp16();
std::span<const KernelInstance> backward_dq_fp32();

}  // namespace fovea::cuda::any
