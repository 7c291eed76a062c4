// What the host halves of all attention kernels share: the problem as kernel parameters, and rounding up.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_ref.h"
#include "fovea/problem.h"

namespace fovea::cuda {

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

inline constexpr std::int64_t kMaxLength = (std::int64_t{1} << 30) - 1;  // so that sums of two lengths fit an int

// Lengths are at most kMaxLength; batch and heads fit an int. The scale is one that attention/scale.h does not refuse.
Shape shape_of(const AttentionProblem& problem);

}  // namespace fovea::cuda
