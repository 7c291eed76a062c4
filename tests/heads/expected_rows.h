// RMS norm and rotary embedding from their formulas, with angles in long double.
#pragma once

#include <cmath>
#include <vector>

#include "heads/row_pass.h"

namespace fovea::heads {

using Row = std::vector<double>;

// `sign` -1: by the opposite angles.
inline Row rotated(Row row, const Rotation& r, std::int64_t position, double sign = 1) {
  const std::int64_t pairs = r.columns / 2;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const long double angle = static_cast<long double>(position) *
                              std::pow(static_cast<long double>(r.theta), -static_cast<long double>(i) / pairs);
    const double c = static_cast<double>(std::cos(angle)), s = sign * static_cast<double>(std::sin(angle));
    const bool halves = r.pairs == RotaryPairs::halves;
    double& a = row[static_cast<std::size_t>(r.first_column + (halves ? i : 2 * i))];
    double& b = row[static_cast<std::size_t>(r.first_column + (halves ? i + pairs : 2 * i + 1))];
    const double x = a, y = b;
    a = x * c - y * s, b = x * s + y * c;
  }
  return row;
}

inline double factor_of(const Row& x, double epsilon) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
}

inline Row normalised(Row x, const Row& weight, double epsilon) {
  const double factor = factor_of(x, epsilon);
  for (std::size_t c = 0; c < x.size(); ++c) x[c] *= factor * weight[c];
  return x;
}

// The derivative of sum(g * normalised(x)) by each x[c] and weight[c], written as sums over all pairs of columns.
inline Row norm_gradient(const Row& x, const Row& weight, double epsilon, const Row& g) {
  const double factor = factor_of(x, epsilon), n = static_cast<double>(x.size());
  Row dx(x.size());
  for (std::size_t c = 0; c < x.size(); ++c) {
    dx[c] = g[c] * weight[c] * factor;
    for (std::size_t j = 0; j < x.size(); ++j) dx[c] -= g[j] * weight[j] * x[j] * factor * factor * factor * x[c] / n;
  }
  return dx;
}

}  // namespace fovea::heads
