// The three ways to compute probabilities from scores.
#pragma once

#include <cstdint>

namespace fovea::baselines {

enum class Form : std::uint8_t {
  naive,       // one pass each for scale, mask and softmax, as in eager framework code
  vectorized,  // the product scales; one pass for lse, one for exp(score - lse)
  fused,       // scale, mask and softmax in one pass
};

}  // namespace fovea::baselines
