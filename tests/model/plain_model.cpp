// Each sequence alone, forward and back.
#include "plain_model.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/float16.h"

namespace fovea::model {
namespace {

struct FloatMatrix {
  std::int64_t rows, columns;
  std::vector<float> values;
  FloatMatrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  float& operator()(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * columns + c)]; }
  float operator()(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * columns + c)]; }
};

FloatMatrix rounded(FloatMatrix m) {
  for (float& one : m.values) one = rounded_to_bf16(one);
  return m;
}

// What forward keeps of a norm and of a block.
struct NormState {
  FloatMatrix x, y;
  std::vector<float> inverse;
};
struct BlockState {
  NormState attention_norm, feed_forward_norm;
  FloatMatrix qkv, out, gate_up, hidden;
  std::vector<FloatMatrix> p;  // of each head, before it is rounded
};

class PlainSequence {
 public:
  PlainSequence(const ExpectedBatch& batch, const std::vector<float>& weights, std::int64_t first, PlainResult& result)
      : c_(batch.config),
        map_(batch.map),
        weights_(weights),
        tokens_(batch.tokens.data() + first),
        targets_(batch.targets.data() + first),
        length_(batch.length),
        share_(1.0f / static_cast<float>(batch.tokens.size())),
        result_(result) {}

  void run() {
    FloatMatrix stream(length_, c_.width);
    for (std::int64_t r = 0; r < length_; ++r)
      for (std::int64_t c = 0; c < c_.width; ++c) stream(r, c) = weight(map_.embedding, tokens_[r] * c_.width + c);
    std::vector<BlockState> blocks;
    for (const BlockOffsets& block : map_.blocks) blocks.push_back(forward(block, stream));
    const NormState last = norm(stream, map_.norm);
    const FloatMatrix dlogits = loss_gradient(product(last.y, map_.head, c_.vocabulary));
    FloatMatrix dstream(length_, c_.width);
    norm_backward(last, map_.norm, product_backward(last.y, map_.head, dlogits), dstream);
    for (std::size_t i = blocks.size(); i-- > 0;) backward(map_.blocks[i], blocks[i], dstream);
    for (std::int64_t r = 0; r < length_; ++r)
      for (std::int64_t c = 0; c < c_.width; ++c) gradient(map_.embedding, tokens_[r] * c_.width + c) += dstream(r, c);
  }

 private:
  float weight(std::int64_t offset, std::int64_t i) const { return weights_[static_cast<std::size_t>(offset + i)]; }
  float& gradient(std::int64_t offset, std::int64_t i) {
    return result_.gradients[static_cast<std::size_t>(offset + i)];
  }

  static void add(FloatMatrix& x, const FloatMatrix& branch) {
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += branch.values[i];
  }

  FloatMatrix product(const FloatMatrix& x, std::int64_t offset, std::int64_t columns) const {
    FloatMatrix y(x.rows, columns);
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t i = 0; i < x.columns; ++i) y(r, c) += x(r, i) * weight(offset, c * x.columns + i);
    return y;
  }

  // Returns dx, rounded.
  FloatMatrix product_backward(const FloatMatrix& x, std::int64_t offset, const FloatMatrix& dy) {
    FloatMatrix dx(x.rows, x.columns);
    for (std::int64_t c = 0; c < dy.columns; ++c) {
      for (std::int64_t i = 0; i < x.columns; ++i) {
        float sum = 0;
        for (std::int64_t r = 0; r < x.rows; ++r) {
          sum += dy(r, c) * x(r, i);
          dx(r, i) += dy(r, c) * weight(offset, c * x.columns + i);
        }
        gradient(offset, c * x.columns + i) += sum;
      }
    }
    return rounded(dx);
  }

  NormState norm(const FloatMatrix& x, std::int64_t offset) const {
    NormState state{x, FloatMatrix(x.rows, x.columns), {}};
    for (std::int64_t r = 0; r < x.rows; ++r) {
      float squares = 0;
      for (std::int64_t c = 0; c < x.columns; ++c) squares += x(r, c) * x(r, c);
      const float mean = squares / static_cast<float>(x.columns);
      state.inverse.push_back(1 / std::sqrt(mean + static_cast<float>(c_.epsilon)));
      for (std::int64_t c = 0; c < x.columns; ++c) state.y(r, c) = x(r, c) * state.inverse.back() * weight(offset, c);
    }
    state.y = rounded(state.y);
    return state;
  }

  void norm_backward(const NormState& state, std::int64_t offset, const FloatMatrix& dy, FloatMatrix& dstream) {
    for (std::int64_t r = 0; r < dy.rows; ++r) {
      const float inverse = state.inverse[static_cast<std::size_t>(r)];
      float products = 0;
      for (std::int64_t c = 0; c < dy.columns; ++c) products += dy(r, c) * weight(offset, c) * state.x(r, c);
      const float mean = products / static_cast<float>(dy.columns);
      for (std::int64_t c = 0; c < dy.columns; ++c) {
        dstream(r, c) += inverse * (dy(r, c) * weight(offset, c) - state.x(r, c) * inverse * inverse * mean);
        gradient(offset, c) += dy(r, c) * state.x(r, c) * inverse;
      }
    }
  }

  static float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

  BlockState forward(const BlockOffsets& block, FloatMatrix& stream) const {
    NormState first = norm(stream, block.attention_norm);
    FloatMatrix qkv = rotated(rounded(product(first.y, block.qkv, 3 * c_.width)), 1);
    std::vector<FloatMatrix> p;
    FloatMatrix out = attention(qkv, p);
    add(stream, rounded(product(out, block.out, c_.width)));
    NormState second = norm(stream, block.feed_forward_norm);
    FloatMatrix gate_up = rounded(product(second.y, block.gate_up, 2 * c_.hidden)), hidden(length_, c_.hidden);
    for (std::int64_t r = 0; r < length_; ++r)
      for (std::int64_t c = 0; c < c_.hidden; ++c)
        hidden(r, c) = gate_up(r, c) * sigmoid(gate_up(r, c)) * gate_up(r, c_.hidden + c);
    hidden = rounded(hidden);
    add(stream, rounded(product(hidden, block.down, c_.width)));
    return {std::move(first),   std::move(second), std::move(qkv), std::move(out),
            std::move(gate_up), std::move(hidden), std::move(p)};
  }

  void backward(const BlockOffsets& block, const BlockState& s, FloatMatrix& dstream) {
    const FloatMatrix dhidden = product_backward(s.hidden, block.down, rounded(dstream));
    FloatMatrix dgate_up(length_, 2 * c_.hidden);
    for (std::int64_t r = 0; r < length_; ++r) {
      for (std::int64_t c = 0; c < c_.hidden; ++c) {
        const float gate = s.gate_up(r, c), up = s.gate_up(r, c_.hidden + c), g = sigmoid(gate);
        dgate_up(r, c) = dhidden(r, c) * up * g * (1 + gate * (1 - g));
        dgate_up(r, c_.hidden + c) = dhidden(r, c) * gate * g;
      }
    }
    norm_backward(s.feed_forward_norm, block.feed_forward_norm,
                  product_backward(s.feed_forward_norm.y, block.gate_up, rounded(dgate_up)), dstream);
    const FloatMatrix dout = product_backward(s.out, block.out, rounded(dstream));
    const FloatMatrix dqkv = rotated(attention_backward(s, dout), -1);
    norm_backward(s.attention_norm, block.attention_norm, product_backward(s.attention_norm.y, block.qkv, dqkv),
                  dstream);
  }

  // Turns q and k, or turns them back, and rounds.
  FloatMatrix rotated(FloatMatrix qkv, double sign) const {
    const std::int64_t dim = c_.head_dim();
    for (std::int64_t r = 0; r < qkv.rows; ++r) {
      for (std::int64_t c = 0; c < 2 * c_.width; c += 2) {
        const double angle = sign * static_cast<double>(r) *
                             std::pow(c_.theta, -static_cast<double>(c % dim) / static_cast<double>(dim));
        const auto cosine = static_cast<float>(std::cos(angle)), sine = static_cast<float>(std::sin(angle));
        const float a = qkv(r, c), b = qkv(r, c + 1);
        qkv(r, c) = a * cosine - b * sine;
        qkv(r, c + 1) = a * sine + b * cosine;
      }
    }
    return rounded(qkv);
  }

  float scale() const { return 1 / std::sqrt(static_cast<float>(c_.head_dim())); }

  FloatMatrix attention(const FloatMatrix& qkv, std::vector<FloatMatrix>& all) const {
    const std::int64_t dim = c_.head_dim();
    FloatMatrix out(length_, c_.width);
    for (std::int64_t head = 0; head < c_.heads; ++head) {
      const std::int64_t q = head * dim, k = c_.width + q, v = c_.width + k;
      FloatMatrix& p = all.emplace_back(length_, length_);
      for (std::int64_t i = 0; i < length_; ++i) {
        float sum = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          float score = 0;
          for (std::int64_t c = 0; c < dim; ++c) score += qkv(i, q + c) * qkv(j, k + c);
          sum += p(i, j) = std::exp(score * scale());
        }
        for (std::int64_t j = 0; j <= i; ++j) p(i, j) /= sum;
        for (std::int64_t j = 0; j <= i; ++j)
          for (std::int64_t c = 0; c < dim; ++c) out(i, q + c) += rounded_to_bf16(p(i, j)) * qkv(j, v + c);
      }
    }
    return rounded(out);
  }

  // dq, dk and dv side by side, rounded.
  FloatMatrix attention_backward(const BlockState& s, const FloatMatrix& dout) const {
    const std::int64_t dim = c_.head_dim();
    FloatMatrix gradient(length_, 3 * c_.width);
    for (std::int64_t head = 0; head < c_.heads; ++head) {
      const std::int64_t q = head * dim, k = c_.width + q, v = c_.width + k;
      const FloatMatrix& p = s.p[static_cast<std::size_t>(head)];
      for (std::int64_t i = 0; i < length_; ++i) {
        float delta = 0;
        for (std::int64_t c = 0; c < dim; ++c) delta += dout(i, q + c) * s.out(i, q + c);
        for (std::int64_t j = 0; j <= i; ++j) {
          float dp = 0;
          for (std::int64_t c = 0; c < dim; ++c) dp += dout(i, q + c) * s.qkv(j, v + c);
          const float ds = rounded_to_bf16(p(i, j) * (dp - delta));
          for (std::int64_t c = 0; c < dim; ++c) {
            gradient(i, q + c) += scale() * ds * s.qkv(j, k + c);
            gradient(j, k + c) += scale() * ds * s.qkv(i, q + c);
            gradient(j, v + c) += rounded_to_bf16(p(i, j)) * dout(i, q + c);
          }
        }
      }
    }
    return rounded(gradient);
  }

  // Adds the losses; the gradient of their mean, rounded.
  FloatMatrix loss_gradient(const FloatMatrix& logits) {
    FloatMatrix dlogits(length_, c_.vocabulary);
    for (std::int64_t r = 0; r < length_; ++r) {
      float largest = logits(r, 0), sum = 0;
      for (std::int64_t c = 0; c < c_.vocabulary; ++c) largest = std::max(largest, logits(r, c));
      for (std::int64_t c = 0; c < c_.vocabulary; ++c) sum += dlogits(r, c) = std::exp(logits(r, c) - largest);
      for (std::int64_t c = 0; c < c_.vocabulary; ++c) dlogits(r, c) *= share_ / sum;
      dlogits(r, targets_[r]) -= share_;
      result_.loss += static_cast<double>(share_ * (std::log(sum) + largest - logits(r, targets_[r])));
    }
    return rounded(dlogits);
  }

  const Config& c_;
  const ParameterMap& map_;
  const std::vector<float>& weights_;
  const std::int32_t *tokens_, *targets_;
  std::int64_t length_;
  float share_;  // of a token in the mean loss
  PlainResult& result_;
};

}  // namespace

float rounded_to_bf16(float value) { return core::bf16_to_float(core::float_to_bf16(value)); }

std::vector<float> rounded_weights(const ParameterMap& map, const std::vector<float>& masters) {
  std::vector<float> weights = masters;
  for (const Parameter& one : map.all()) {
    if (!is_rounded(map, one)) continue;
    for (std::int64_t i = one.offset; i < one.offset + one.count(); ++i)
      weights[static_cast<std::size_t>(i)] = rounded_to_bf16(weights[static_cast<std::size_t>(i)]);
  }
  return weights;
}

PlainResult plain_result(const ExpectedBatch& batch, const std::vector<float>& masters) {
  PlainResult result{.gradients = std::vector<float>(masters.size())};
  const std::vector<float> weights = rounded_weights(batch.map, masters);
  const auto rows = static_cast<std::int64_t>(batch.tokens.size());
  for (std::int64_t first = 0; first < rows; first += batch.length) PlainSequence(batch, weights, first, result).run();
  return result;
}

}  // namespace fovea::model
