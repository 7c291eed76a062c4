// Sines and cosines of a rotation on the host. They do not depend on which rows a call has.
#pragma once

#include <cstdint>
#include <vector>

#include "heads/row_pass.h"

namespace fovea::heads {

// What a call knows of its pairs: frequencies, and the rotation from one position to the next.
class Pairs {
 public:
  explicit Pairs(const Rotation& rotation);

  std::size_t count() const { return frequency_.size(); }

 private:
  friend class Angles;
  std::vector<double> frequency_, cos_, sin_;
};

// The angles of one position after another. A library's sine is asked for every kPositions-th position only: between
// them, each position is the one before, rotated on in double precision.
class Angles {
 public:
  static constexpr std::int64_t kPositions = 32;

  explicit Angles(const Pairs& pairs);
  void move_to(std::int64_t position);  // not before the current one

  const float* cos() const { return rounded_cos_.data(); }
  const float* sin() const { return rounded_sin_.data(); }

 private:
  const Pairs& pairs_;
  std::int64_t position_ = -1;  // of cos_ and sin_; -1: none yet
  std::vector<double> cos_, sin_;
  std::vector<float> rounded_cos_, rounded_sin_;
};

}  // namespace fovea::heads
