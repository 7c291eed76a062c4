// Random cases of layers.
#pragma once

#include <cstdint>

#include "verification/operation.h"

namespace fovea::verification {

// The n-th random case of a seed: few heads, lengths around tile sizes, widths that need not be those of the heads.
Case random_layer_case(const Operation& operation, std::uint64_t seed, std::uint64_t n, const CaseLimits& limits);

}  // namespace fovea::verification
