// Frequencies have a relative error of a few roundings, so an angle's error grows with the position (fovea/rotary.h).
#include "heads/angles.h"

#include <cmath>

namespace fovea {

std::string_view to_string(RotaryPairs pairs) {
  return pairs == RotaryPairs::interleaved ? "interleaved" : pairs == RotaryPairs::halves ? "halves" : "unknown";
}

}  // namespace fovea

namespace fovea::heads {

Pairs::Pairs(const Rotation& rotation) {
  const std::int64_t count = rotation.columns / 2;
  for (std::int64_t i = 0; i < count; ++i) {
    const double frequency = std::pow(rotation.theta, -static_cast<double>(i) / static_cast<double>(count));
    frequency_.push_back(frequency);
    cos_.push_back(std::cos(frequency)), sin_.push_back(std::sin(frequency));
  }
}

Angles::Angles(const Pairs& pairs)
    : pairs_(pairs),
      cos_(pairs.count()),
      sin_(pairs.count()),
      rounded_cos_(pairs.count()),
      rounded_sin_(pairs.count()) {}

void Angles::move_to(std::int64_t position) {
  const std::int64_t first = position / kPositions * kPositions;
  const std::size_t count = pairs_.count();
  if (position_ < first) {
    for (std::size_t i = 0; i < count; ++i) {
      const double angle = static_cast<double>(first) * pairs_.frequency_[i];
      cos_[i] = std::cos(angle), sin_[i] = std::sin(angle);
    }
    position_ = first;
  }
  for (; position_ < position; ++position_) {
    for (std::size_t i = 0; i < count; ++i) {
      const double c = cos_[i], s = sin_[i];
      cos_[i] = c * pairs_.cos_[i] - s * pairs_.sin_[i];
      sin_[i] = s * pairs_.cos_[i] + c * pairs_.sin_[i];
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    rounded_cos_[i] = static_cast<float>(cos_[i]);
    rounded_sin_[i] = static_cast<float>(sin_[i]);
  }
}

}  // namespace fovea::heads
