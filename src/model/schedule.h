// The learning rate of a step: a linear warm-up, then a cosine down to the least (Loshchilov, Hutter, arXiv
// 1608.03983).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace fovea::model {

struct Schedule {
  double largest = 1e-3, least = 1e-4;
  std::int64_t warm_up = 100, steps = 1000;  // `steps` counts the warm-up too
};

// Of step 0, 1, .. The last step of the warm-up has the largest rate; steps beyond the schedule have the least.
inline double learning_rate(const Schedule& s, std::int64_t step) {
  if (step < s.warm_up) return s.largest * static_cast<double>(step + 1) / static_cast<double>(s.warm_up);
  if (step >= s.steps) return s.least;
  const double share = static_cast<double>(step - s.warm_up) / static_cast<double>(s.steps - s.warm_up);
  return s.least + 0.5 * (s.largest - s.least) * (1 + std::cos(std::numbers::pi * share));
}

}  // namespace fovea::model
