// The three ways to compute probabilities from scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fovea::baselines {

enum class Form : std::uint8_t {
  naive,       // one pass each for scale, mask and softmax, as in eager framework code
  vectorized,  // the product scales; one pass for lse, one for exp(score - lse)
  fused,       // scale, mask and softmax in one pass
};

constexpr std::string_view name_of(Form form) {
  constexpr std::string_view kNames[] = {"naive", "vectorized", "fused"};
  return kNames[static_cast<std::size_t>(form)];
}

}  // namespace fovea::baselines
