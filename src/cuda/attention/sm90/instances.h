// The kernel instances, one function per instance file.
#pragma once

#include <span>

#include "cuda/attention/sm90/backward_parameters.h"
#include "cuda/attention/sm90/parameters.h"
#include "cuda/attention/sm90/two_pass_parameters.h"

namespace fovea::cuda::sm90 {

std::span<const ForwardInstance> forward_bf16();
std::span<const ForwardInstance> forward_fp16();
std::span<const BackwardInstance> backward_bf16();
std::span<const BackwardInstance> backward_fp16();
std::span<const TwoPassInstance> two_pass_bf16();
std::span<const TwoPassInstance> two_pass_fp16();

}  // namespace fovea::cuda::sm90
