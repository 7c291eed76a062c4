// The three ways of getting from scores to probabilities.
#pragma once

#include <cstdint>

namespace fovea::baselines {

enum class Form : std::uint8_t {
  naive,       // scale, mask, softmax: each a pass over the matrix, as eager framework code does
  vectorized,  // the product scales; one pass for the log-sum-exp, one for exp(score - lse)
  fused,       // scale, mask and softmax in one pass
};

}  // namespace fovea::baselines
