// The range of scales, from the normal numbers of fp32.
#include "attention/scale.h"

#include <cmath>
#include <limits>

namespace fovea::attention {

std::string scale_refusal(double scale) {
  constexpr double kLog2E = 1.44269504088896340736;
  constexpr double kLeast = std::numeric_limits<float>::min(), kMost = std::numeric_limits<float>::max();
  const double log2_scale = std::fabs(scale) * kLog2E;
  if (scale == 0 || (log2_scale >= kLeast && log2_scale <= kMost)) return {};
  return "takes a scale of 0, or of 8.2e-39 to 2.3e38 in size, whose product with log2(e) is a normal number of fp32";
}

}  // namespace fovea::attention
