// Random small models: their cases, and the numbers of their tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "verification/operation.h"

namespace fovea::verification {

Case random_model_case(const Operation& operation, std::uint64_t seed, std::uint64_t n, const CaseLimits& limits);

// normal and outliers. Tokens are whole numbers below the vocabulary, weights of norms are near 1, second moments are
// squares, and matrices keep the size of what they multiply.
std::vector<Family> model_families();

}  // namespace fovea::verification
