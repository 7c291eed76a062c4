// Angles are computed in double precision for both kinds of numbers.
#include "verification/layers/rows.h"

#include <cmath>

namespace fovea::verification {
namespace {

// `direction` 1 or -1: by the angle, or back.
template <class Number>
void turn_row(const Turn& turn, std::int64_t position, double direction, Number* row) {
  const std::int64_t pairs = turn.columns / 2;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double angle = direction * static_cast<double>(turn.first_position + position) *
                         std::pow(turn.theta, -static_cast<double>(i) / static_cast<double>(pairs));
    const auto c = static_cast<Number>(std::cos(angle)), s = static_cast<Number>(std::sin(angle));
    const bool adjacent = turn.pairs == RotaryPairs::interleaved;
    Number& a = row[turn.first_column + (adjacent ? 2 * i : i)];
    Number& b = row[turn.first_column + (adjacent ? 2 * i + 1 : i + pairs)];
    const Number old_a = a, old_b = b;
    a = old_a * c - old_b * s;
    b = old_b * c + old_a * s;
  }
}

template <class Number>
Number inverse_root(const Number* row, std::int64_t dim, double epsilon) {
  Number squares = 0;
  for (std::int64_t c = 0; c < dim; ++c) squares += row[c] * row[c];
  return Number{1} / std::sqrt(squares / static_cast<Number>(dim) + static_cast<Number>(epsilon));
}

// Calls visit(position, row, head) for each head of each row.
template <class Visit>
void for_each_head(const RowTransform& t, std::int64_t rows, const Visit& visit) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t head = 0; head < t.heads; ++head) visit(row % t.len, row, head);
  }
}

}  // namespace

template <class Number>
Matrix<Number> transformed(const RowTransform& t, Matrix<Number> rows) {
  const std::int64_t dim = rows.columns / t.heads;
  for_each_head(t, rows.rows, [&](std::int64_t position, std::int64_t row, std::int64_t head) {
    Number* const values = rows.row(row) + head * dim;
    if (t.weight.rows > 0) {
      const Number factor = inverse_root(values, dim, t.epsilon);
      for (std::int64_t c = 0; c < dim; ++c) values[c] = values[c] * factor * static_cast<Number>(t.weight.row(0)[c]);
    }
    if (t.turn) turn_row(*t.turn, position, 1, values);
  });
  return rows;
}

// y[c] = x[c] f w[c] with f = (mean(x^2) + epsilon)^(-1/2), so df / dx[j] = -f^3 x[j] / dim.
template <class Number>
RowGradient<Number> transform_gradient(const RowTransform& t, const Matrix<Number>& rows, Matrix<Number> gradients) {
  const std::int64_t dim = gradients.columns / t.heads;
  RowGradient<Number> result;
  if (t.weight.rows > 0) result.products = Matrix<Number>(gradients.rows * t.heads, dim);
  for_each_head(t, gradients.rows, [&](std::int64_t position, std::int64_t row, std::int64_t head) {
    Number* const g = gradients.row(row) + head * dim;
    if (t.turn) turn_row(*t.turn, position, -1, g);
    if (t.weight.rows == 0) return;
    const Number* const x = rows.row(row) + head * dim;
    const Number factor = inverse_root(x, dim, t.epsilon);
    Number by_factor = 0;  // the derivative by f
    for (std::int64_t c = 0; c < dim; ++c) {
      result.products.row(row * t.heads + head)[c] = g[c] * (x[c] * factor);
      g[c] *= static_cast<Number>(t.weight.row(0)[c]);
      by_factor += g[c] * x[c];
    }
    for (std::int64_t c = 0; c < dim; ++c)
      g[c] = factor * (g[c] - x[c] * factor * (factor * by_factor / static_cast<Number>(dim)));
  });
  result.rows = std::move(gradients);
  return result;
}

template Matrix<double> transformed(const RowTransform&, Matrix<double>);
template Matrix<float> transformed(const RowTransform&, Matrix<float>);
template RowGradient<double> transform_gradient(const RowTransform&, const Matrix<double>&, Matrix<double>);
template RowGradient<float> transform_gradient(const RowTransform&, const Matrix<float>&, Matrix<float>);

}  // namespace fovea::verification
