// Each sequence alone, in plain loops.
#include "expected_model.h"

#include <algorithm>
#include <cmath>

namespace fovea::model {
namespace {

struct Matrix {
  std::int64_t rows, columns;
  std::vector<double> values;
  Matrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * columns + c)]; }
  double operator()(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * columns + c)]; }
};

class Evaluation {
 public:
  Evaluation(const Config& config, const ParameterMap& map, const std::vector<double>& weights)
      : config_(config), map_(map), weights_(weights) {}

  // The sum of the losses of one sequence.
  double sequence(const std::int32_t* tokens, const std::int32_t* targets, std::int64_t length) const {
    Matrix x(length, config_.width);
    for (std::int64_t r = 0; r < length; ++r)
      for (std::int64_t c = 0; c < config_.width; ++c) x(r, c) = at(map_.embedding, tokens[r] * config_.width + c);
    for (const BlockOffsets& block : map_.blocks) {
      add(x, product(attention(product(norm(x, block.attention_norm), block.qkv, 3 * config_.width)), block.out,
                     config_.width));
      add(x, product(swiglu(product(norm(x, block.feed_forward_norm), block.gate_up, 2 * config_.hidden)), block.down,
                     config_.width));
    }
    const Matrix logits = product(norm(x, map_.norm), map_.head, config_.vocabulary);
    double loss = 0;
    for (std::int64_t r = 0; r < length; ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < logits.columns; ++c) sum += std::exp(logits(r, c));
      loss += std::log(sum) - logits(r, targets[r]);
    }
    return loss;
  }

 private:
  double at(std::int64_t offset, std::int64_t i) const { return weights_[static_cast<std::size_t>(offset + i)]; }

  static void add(Matrix& x, const Matrix& branch) {
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += branch.values[i];
  }

  Matrix product(const Matrix& x, std::int64_t offset, std::int64_t columns) const {
    Matrix y(x.rows, columns);
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t i = 0; i < x.columns; ++i) y(r, c) += x(r, i) * at(offset, c * x.columns + i);
    return y;
  }

  Matrix norm(const Matrix& x, std::int64_t offset) const {
    Matrix y(x.rows, x.columns);
    for (std::int64_t r = 0; r < x.rows; ++r) {
      double squares = 0;
      for (std::int64_t c = 0; c < x.columns; ++c) squares += x(r, c) * x(r, c);
      const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.columns) + config_.epsilon);
      for (std::int64_t c = 0; c < x.columns; ++c) y(r, c) = x(r, c) * inverse * at(offset, c);
    }
    return y;
  }

  Matrix swiglu(const Matrix& gate_up) const {
    Matrix out(gate_up.rows, config_.hidden);
    for (std::int64_t r = 0; r < out.rows; ++r)
      for (std::int64_t c = 0; c < out.columns; ++c)
        out(r, c) = gate_up(r, c) / (1 + std::exp(-gate_up(r, c))) * gate_up(r, config_.hidden + c);
    return out;
  }

  // Turns the pairs of neighbouring columns of each head of q and k, by angles that grow with the row.
  Matrix rotated(Matrix qkv) const {
    const std::int64_t dim = config_.head_dim();
    for (std::int64_t r = 0; r < qkv.rows; ++r) {
      for (std::int64_t c = 0; c < 2 * config_.width; c += 2) {
        const double angle =
            static_cast<double>(r) * std::pow(config_.theta, -static_cast<double>(c % dim) / static_cast<double>(dim));
        const double a = qkv(r, c), b = qkv(r, c + 1);
        qkv(r, c) = a * std::cos(angle) - b * std::sin(angle);
        qkv(r, c + 1) = a * std::sin(angle) + b * std::cos(angle);
      }
    }
    return qkv;
  }

  // Causal; rows of q, k and v side by side.
  Matrix attention(const Matrix& before) const {
    const Matrix qkv = rotated(before);
    const std::int64_t dim = config_.head_dim();
    Matrix out(qkv.rows, config_.width);
    for (std::int64_t head = 0; head < config_.heads; ++head) {
      const std::int64_t q = head * dim, k = config_.width + q, v = config_.width + k;
      for (std::int64_t i = 0; i < qkv.rows; ++i) {
        std::vector<double> p;
        double sum = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (std::int64_t c = 0; c < dim; ++c) score += qkv(i, q + c) * qkv(j, k + c);
          p.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
          sum += p.back();
        }
        for (std::int64_t j = 0; j <= i; ++j)
          for (std::int64_t c = 0; c < dim; ++c)
            out(i, head * dim + c) += p[static_cast<std::size_t>(j)] / sum * qkv(j, v + c);
      }
    }
    return out;
  }

  const Config& config_;
  const ParameterMap& map_;
  const std::vector<double>& weights_;
};

}  // namespace

double expected_loss(const ExpectedBatch& batch, const std::vector<double>& weights) {
  const Evaluation evaluation(batch.config, batch.map, weights);
  double sum = 0;
  const auto rows = static_cast<std::int64_t>(batch.tokens.size());
  for (std::int64_t first = 0; first < rows; first += batch.length)
    sum += evaluation.sequence(batch.tokens.data() + first, batch.targets.data() + first, batch.length);
  return sum / static_cast<double>(rows);
}

std::vector<double> expected_gradient(const ExpectedBatch& batch, const std::vector<double>& weights) {
  constexpr double kStep = 1e-5;
  std::vector<double> gradient(weights.size()), moved = weights;
  for (const Parameter& one : batch.map.all()) {
    for (auto i = static_cast<std::size_t>(one.offset); i < static_cast<std::size_t>(one.offset + one.count()); ++i) {
      moved[i] = weights[i] + kStep;
      const double up = expected_loss(batch, moved);
      moved[i] = weights[i] - kStep;
      gradient[i] = (up - expected_loss(batch, moved)) / (2 * kStep);
      moved[i] = weights[i];
    }
  }
  return gradient;
}

void expected_step(const ParameterMap& map, const AdamW& s, double learning_rate, std::int64_t step,
                   const std::vector<double>& gradient, ExpectedState& state) {
  double squares = 0;
  for (const double g : gradient) squares += g * g;
  const double norm = std::sqrt(squares), factor = norm > s.largest_norm ? s.largest_norm / norm : 1;
  const auto t = static_cast<double>(step + 1);
  for (const Parameter& one : map.all()) {
    for (auto i = static_cast<std::size_t>(one.offset); i < static_cast<std::size_t>(one.offset + one.count()); ++i) {
      const double g = factor * gradient[i];
      state.m[i] = s.beta1 * state.m[i] + (1 - s.beta1) * g;
      state.v[i] = s.beta2 * state.v[i] + (1 - s.beta2) * g * g;
      const double m = state.m[i] / (1 - std::pow(s.beta1, t)), v = state.v[i] / (1 - std::pow(s.beta2, t));
      const double decay = one.is_vector ? 0 : s.weight_decay;
      state.weights[i] -= learning_rate * (m / (std::sqrt(v) + s.epsilon) + decay * state.weights[i]);
    }
  }
}

}  // namespace fovea::model
