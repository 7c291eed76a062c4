// Forward keeps what backward reads; backward goes the same way back.
#include "verification/model/evaluation.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fovea::verification {
namespace {

template <class Number>
struct NormState {
  Matrix<Number> x, y;
};
template <class Number>
struct BlockState {
  NormState<Number> attention_norm, feed_forward_norm;
  Heads<Number> heads;
  Matrix<Number> out, gate_up, hidden;
};

template <class Number>
Number sigmoid(Number x) {
  return Number{1} / (Number{1} + std::exp(-x));
}

template <class Number>
void add(Matrix<Number>& to, const Matrix<Number>& what) {
  std::transform(to.values.begin(), to.values.end(), what.values.begin(), to.values.begin(), std::plus<Number>{});
}

template <class Arithmetic>
class Evaluation {
 public:
  using Number = typename Arithmetic::Number;

  Evaluation(const ModelInputs& inputs, const Arithmetic& arithmetic)
      : in_(inputs), c_(inputs.config), map_(inputs.map), arithmetic_(arithmetic), attention_(attention_problem()) {}

  ModelAnswer<Number> answer(Pass pass) {
    Matrix<Number> stream(in_.extent.rows(), c_.width);
    for (std::int64_t r = 0; r < stream.rows; ++r) {
      for (std::int64_t c = 0; c < c_.width; ++c)
        stream.row(r)[c] = static_cast<Number>(in_.weights[embedding_index(r) + static_cast<std::size_t>(c)]);
    }
    std::vector<BlockState<Number>> blocks;
    for (const model::BlockOffsets& block : map_.blocks) blocks.push_back(forward(block, stream));
    const NormState<Number> last = norm(stream, map_.norm);
    Matrix<Number> logits = multiply(last.y, map_.head, c_.vocabulary);
    ModelAnswer<Number> result{losses_of(logits), {}};
    if (pass == Pass::forward) return result;
    gradients_.assign(in_.weights.size(), Number{0});
    std::copy(in_.gradients.begin(), in_.gradients.end(), gradients_.begin());
    Matrix<Number> dstream(stream.rows, c_.width);
    differentiate_losses(logits);
    norm_backward(last, map_.norm, multiply_backward(last.y, map_.head, logits), dstream);
    for (std::size_t i = blocks.size(); i-- > 0;) backward(map_.blocks[i], blocks[i], dstream);
    for (std::int64_t r = 0; r < stream.rows; ++r) {
      for (std::int64_t c = 0; c < c_.width; ++c)
        gradients_[embedding_index(r) + static_cast<std::size_t>(c)] += dstream.row(r)[c];
    }
    result.gradients = std::move(gradients_);
    return result;
  }

 private:
  AttentionProblem attention_problem() const {
    AttentionProblem p{.batch = in_.extent.batch,
                       .heads_q = c_.heads,
                       .heads_kv = c_.heads,
                       .len_q = in_.extent.length,
                       .len_k = in_.extent.length,
                       .dim_qk = c_.head_dim(),
                       .dim_v = c_.head_dim(),
                       .dtype = c_.dtype,
                       .result_dtype = c_.dtype};
    p.mask = Mask::causal;
    p.scale = 1.0 / std::sqrt(static_cast<double>(c_.head_dim()));
    return p;
  }

  std::size_t embedding_index(std::int64_t row) const {
    return static_cast<std::size_t>(map_.embedding + in_.tokens[static_cast<std::size_t>(row)] * c_.width);
  }

  Matrix<float> vector(std::int64_t offset) const {
    Matrix<float> m(1, c_.width);
    std::copy_n(in_.weights.begin() + offset, c_.width, m.values.begin());
    return m;
  }
  // A matrix as products read it.
  Matrix<float> matrix(std::int64_t offset, std::int64_t rows, std::int64_t columns) const {
    Matrix<float> rounded(rows, columns);
    std::copy_n(in_.weights.begin() + offset, rows * columns, rounded.values.begin());
    round_to(c_.dtype, rounded);
    return rounded;
  }

  Matrix<Number> multiply(const Matrix<Number>& x, std::int64_t offset, std::int64_t columns) const {
    return arithmetic_.multiply(x, Operand(matrix(offset, columns, x.columns), true));
  }
  Matrix<Number> stored(Matrix<Number> m) const {
    arithmetic_.store(m);
    return m;
  }
  // Adds the gradient of the matrix, and returns that of x.
  Matrix<Number> multiply_backward(const Matrix<Number>& x, std::int64_t offset, const Matrix<Number>& dy) {
    add_product(offset, dy.columns, x.columns, transposed(dy), x);
    return stored(arithmetic_.multiply(dy, Operand(matrix(offset, dy.columns, x.columns))));
  }
  void add_product(std::int64_t offset, std::int64_t rows, std::int64_t columns, const Matrix<Number>& a,
                   const Matrix<Number>& b) {
    const auto at = gradients_.begin() + offset;
    Matrix<Number> before;
    if (!in_.gradients.empty()) {
      before = Matrix<Number>(rows, columns);
      std::copy_n(at, rows * columns, before.values.begin());
    }
    const Matrix<Number> sum = arithmetic_.multiply(a, b, before);
    std::copy(sum.values.begin(), sum.values.end(), at);
  }

  NormState<Number> norm(const Matrix<Number>& x, std::int64_t offset) const {
    return {x, stored(transformed<Number>({.weight = vector(offset), .epsilon = c_.epsilon}, x))};
  }
  void norm_backward(const NormState<Number>& state, std::int64_t offset, Matrix<Number> dy, Matrix<Number>& dstream) {
    const RowGradient<Number> gradient =
        transform_gradient<Number>({.weight = vector(offset), .epsilon = c_.epsilon}, state.x, std::move(dy));
    add(dstream, gradient.rows);
    Matrix<Number> ones(1, gradient.products.rows);
    ones.values.assign(ones.values.size(), Number{1});
    add_product(offset, 1, c_.width, ones, gradient.products);
  }

  RowTransform turn() const {
    return {.heads = c_.heads, .len = in_.extent.length, .turn = Turn{.theta = c_.theta, .columns = c_.head_dim()}};
  }

  BlockState<Number> forward(const model::BlockOffsets& block, Matrix<Number>& stream) const {
    BlockState<Number> s;
    s.attention_norm = norm(stream, block.attention_norm);
    const Matrix<Number> qkv = stored(multiply(s.attention_norm.y, block.qkv, 3 * c_.width));
    s.heads = {stored(transformed<Number>(turn(), columns_of(qkv, 0, c_.width))),
               stored(transformed<Number>(turn(), columns_of(qkv, c_.width, c_.width))),
               columns_of(qkv, 2 * c_.width, c_.width)};
    s.out = stored(arithmetic_.attend(attention_, s.heads));
    add(stream, stored(multiply(s.out, block.out, c_.width)));
    s.feed_forward_norm = norm(stream, block.feed_forward_norm);
    s.gate_up = stored(multiply(s.feed_forward_norm.y, block.gate_up, 2 * c_.hidden));
    s.hidden = Matrix<Number>(stream.rows, c_.hidden);
    for (std::int64_t r = 0; r < stream.rows; ++r) {
      const Number* const gate = s.gate_up.row(r);
      for (std::int64_t c = 0; c < c_.hidden; ++c)
        s.hidden.row(r)[c] = gate[c] * sigmoid(gate[c]) * gate[c_.hidden + c];
    }
    arithmetic_.store(s.hidden);
    add(stream, stored(multiply(s.hidden, block.down, c_.width)));
    return s;
  }

  void backward(const model::BlockOffsets& block, const BlockState<Number>& s, Matrix<Number>& dstream) {
    const Matrix<Number> dhidden = multiply_backward(s.hidden, block.down, stored(dstream));
    Matrix<Number> dgate_up(dstream.rows, 2 * c_.hidden);
    for (std::int64_t r = 0; r < dstream.rows; ++r) {
      for (std::int64_t c = 0; c < c_.hidden; ++c) {
        const Number gate = s.gate_up.row(r)[c], up = s.gate_up.row(r)[c_.hidden + c], part = sigmoid(gate);
        dgate_up.row(r)[c] = dhidden.row(r)[c] * up * part * (1 + gate * (1 - part));
        dgate_up.row(r)[c_.hidden + c] = dhidden.row(r)[c] * gate * part;
      }
    }
    norm_backward(s.feed_forward_norm, block.feed_forward_norm,
                  multiply_backward(s.feed_forward_norm.y, block.gate_up, stored(std::move(dgate_up))), dstream);
    const Matrix<Number> dout = multiply_backward(s.out, block.out, stored(dstream));
    Heads<Number> d = arithmetic_.attend_backward(attention_, s.heads, s.out, dout);
    const auto turned_back = [this](Matrix<Number> m) { return stored(transform_gradient<Number>(turn(), m, m).rows); };
    const Matrix<Number> dqkv =
        side_by_side(side_by_side(turned_back(std::move(d.q)), turned_back(std::move(d.k))), stored(std::move(d.v)));
    norm_backward(s.attention_norm, block.attention_norm, multiply_backward(s.attention_norm.y, block.qkv, dqkv),
                  dstream);
  }

  // log(sum of exp(logit)) less the logit of the target.
  Matrix<Number> losses_of(const Matrix<Number>& logits) const {
    Matrix<Number> losses(in_.extent.batch, in_.extent.length);
    for (std::int64_t r = 0; r < logits.rows; ++r) {
      const Number* const row = logits.row(r);
      const Number largest = *std::max_element(row, row + c_.vocabulary);
      Number sum = 0;
      for (std::int64_t c = 0; c < c_.vocabulary; ++c) sum += std::exp(row[c] - largest);
      losses.values[static_cast<std::size_t>(r)] =
          std::log(sum) + (largest - row[in_.targets[static_cast<std::size_t>(r)]]);
    }
    return losses;
  }

  // Logits become the gradient of the mean loss.
  void differentiate_losses(Matrix<Number>& logits) const {
    const Number share = Number{1} / static_cast<Number>(logits.rows);
    for (std::int64_t r = 0; r < logits.rows; ++r) {
      Number* const row = logits.row(r);
      const Number largest = *std::max_element(row, row + c_.vocabulary);
      Number sum = 0;
      for (std::int64_t c = 0; c < c_.vocabulary; ++c) sum += row[c] = std::exp(row[c] - largest);
      for (std::int64_t c = 0; c < c_.vocabulary; ++c) row[c] *= share / sum;
      row[in_.targets[static_cast<std::size_t>(r)]] -= share;
    }
    arithmetic_.store(logits);
  }

  const ModelInputs& in_;
  const model::Config& c_;
  const model::ParameterMap& map_;
  const Arithmetic& arithmetic_;
  AttentionProblem attention_;
  std::vector<Number> gradients_;
};

}  // namespace

template <class Arithmetic>
ModelAnswer<typename Arithmetic::Number> evaluate(const ModelInputs& inputs, Pass pass, const Arithmetic& arithmetic) {
  return Evaluation<Arithmetic>(inputs, arithmetic).answer(pass);
}

template <class Number>
std::vector<Number> updated(const ModelInputs& inputs, const ModelUpdate& update,
                            const std::vector<Number>& gradients) {
  const model::AdamW& s = update.settings;
  std::vector<Number> weights(inputs.weights.begin(), inputs.weights.end());
  double squares = 0;  // in fp32, a sum over all weights would stop to grow
  for (const Number g : gradients) squares += static_cast<double>(g) * static_cast<double>(g);
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm)) return weights;
  const auto factor = static_cast<Number>(norm > s.largest_norm ? s.largest_norm / norm : 1);
  const auto t = static_cast<double>(update.step + 1);
  const auto rest1 = static_cast<Number>(1 - s.beta1), rest2 = static_cast<Number>(1 - s.beta2);
  const auto first = static_cast<Number>(1 - std::pow(s.beta1, t)),
             second = static_cast<Number>(1 - std::pow(s.beta2, t));
  const auto rate = static_cast<Number>(update.learning_rate), epsilon = static_cast<Number>(s.epsilon);
  for (const model::Parameter& one : inputs.map.all()) {
    const auto decay = static_cast<Number>(one.is_vector ? 0 : s.weight_decay);
    for (auto i = static_cast<std::size_t>(one.offset); i < static_cast<std::size_t>(one.offset + one.count()); ++i) {
      const Number g = factor * gradients[i];
      const Number m = (1 - rest1) * static_cast<Number>(update.first_moment[i]) + rest1 * g;
      const Number v = (1 - rest2) * static_cast<Number>(update.second_moment[i]) + rest2 * g * g;
      weights[i] -= rate * (m / first / (std::sqrt(v / second) + epsilon) + decay * weights[i]);
    }
  }
  return weights;
}

template ModelAnswer<double> evaluate(const ModelInputs&, Pass, const ExactArithmetic&);
template ModelAnswer<float> evaluate(const ModelInputs&, Pass, const PlainArithmetic&);
template std::vector<double> updated(const ModelInputs&, const ModelUpdate&, const std::vector<double>&);
template std::vector<float> updated(const ModelInputs&, const ModelUpdate&, const std::vector<float>&);

}  // namespace fovea::verification
