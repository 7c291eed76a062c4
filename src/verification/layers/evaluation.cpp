// The dataflow of each kind as a list of projections around attention; gradients follow it backwards.
#include "verification/layers/evaluation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/float16.h"
#include "core/random.h"

namespace fovea::verification {
namespace {

template <class Number>
Matrix<Number> cast(const Matrix<float>& m) {
  Matrix<Number> result(m.rows, m.columns);
  std::copy(m.values.begin(), m.values.end(), result.values.begin());
  return result;
}

Matrix<float> read(const TensorView& view) {
  if (!view) return {};
  Matrix<float> m(view.sizes[0] * view.sizes[2], view.sizes[3]);
  for (std::int64_t b = 0; b < view.sizes[0]; ++b) {
    for (std::int64_t i = 0; i < view.sizes[2]; ++i) {
      float* const row = m.row(b * view.sizes[2] + i);
      for (std::int64_t c = 0; c < m.columns; ++c)
        row[c] = core::load_as_float(view.data, view.dtype, b * view.strides[0] + i * view.strides[2] + c);
    }
  }
  return m;
}

AttentionProblem attention_of(const LayerProblem& p, Pass pass) {
  AttentionProblem a{.pass = pass,
                     .batch = p.batch,
                     .heads_q = p.heads_q,
                     .heads_kv = p.heads_kv,
                     .len_q = p.len_q,
                     .len_k = p.len_k,
                     .dim_qk = p.dim_qk,
                     .dim_v = p.dim_v,
                     .dtype = p.dtype,
                     .mask = p.mask,
                     .scale = p.scale};
  a.result_dtype = p.dtype;
  a.device = p.device;
  return a;
}

}  // namespace

std::string name_of(Part part) {
  constexpr const char* kNames[] = {"qkv", "q_down", "q", "kv_down", "k", "v", "out"};
  return kNames[static_cast<std::size_t>(part)];
}

std::vector<Step> steps_of(const LayerProblem& p) {
  using enum Activation;
  const Activation keys_from = p.cross ? x_kv : x;
  const Step last{Part::out, attention, y};
  if (p.kind == LayerKind::mha_fused) return {{Part::qkv, x, qkv}, last};
  if (p.kind != LayerKind::mla) return {{Part::q, x, q}, {Part::k, keys_from, k}, {Part::v, keys_from, v}, last};
  return {{Part::q_down, x, q_latent}, {Part::q, q_latent, q},  {Part::kv_down, keys_from, kv_latent},
          {Part::k, kv_latent, k},     {Part::v, kv_latent, v}, last};
}

LayerInputs read_inputs(const LayerProblem& p, const TensorSet& tensors) {
  LayerInputs inputs{read(tensors["x"]), read(tensors["x_kv"]), read(tensors["dy"]), {}, {}, {}, {}};
  for (const Step& step : steps_of(p)) {
    at(inputs.weight, step.part) = read(tensors[name_of(step.part) + "_weight"]);
    at(inputs.bias, step.part) = read(tensors[name_of(step.part) + "_bias"]);
    if (!p.accumulate) continue;
    at(inputs.dweight, step.part) = read(tensors["d" + name_of(step.part) + "_weight"]);
    at(inputs.dbias, step.part) = read(tensors["d" + name_of(step.part) + "_bias"]);
  }
  return inputs;
}

LayerInputs moved(const LayerProblem& p, const LayerInputs& inputs, std::uint64_t number, bool by_value) {
  LayerInputs result = inputs;
  std::uint64_t stream = 0;
  const auto move = [&](Matrix<float>& m, DType dtype) {
    ++stream;
    double sum = 0;
    for (const float value : m.values) sum += std::abs(static_cast<double>(value));
    const auto typical = static_cast<float>(sum / static_cast<double>(std::max<std::size_t>(m.values.size(), 1)));
    for (std::size_t n = 0; n < m.values.size(); ++n) {
      const std::uint64_t mark = by_value ? std::bit_cast<std::uint32_t>(m.values[n]) : n;
      const auto random = static_cast<float>(core::philox(number + 1, stream, mark)[0]);
      m.values[n] += (random * 0x1p-31f - 1.0f) / 8 * (m.values[n] + typical);
    }
    round_to(dtype, m);
  };
  for (Matrix<float>* const one : {&result.x, &result.x_kv, &result.dy}) move(*one, p.dtype);
  for (const Part part : kParts) {
    for (auto* const some : {&result.weight, &result.bias}) move(at(*some, part), p.dtype);
    for (auto* const some : {&result.dweight, &result.dbias}) move(at(*some, part), DType::fp32);
  }
  return result;
}

template <class Arithmetic>
LayerValues<Arithmetic>::LayerValues(const LayerProblem& problem, std::shared_ptr<const LayerInputs> inputs,
                                     Arithmetic arithmetic)
    : problem_(problem), inputs_(std::move(inputs)), arithmetic_(std::move(arithmetic)), steps_(steps_of(problem)) {}

template <class Arithmetic>
const Step& LayerValues<Arithmetic>::step_of(Part part) const {
  return *std::find_if(steps_.begin(), steps_.end(), [part](const Step& one) { return one.part == part; });
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::activation(Activation which) -> const Matrix<Number>& {
  auto& known = slot(activations_, which);
  if (!known) known = computed(which);
  return *known;
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::computed(Activation which) -> Matrix<Number> {
  using enum Activation;
  if (which == x) return cast<Number>(inputs_->x);
  if (which == x_kv) return cast<Number>(inputs_->x_kv);
  if (which == attention) return arithmetic_.attend(attention_of(problem_, Pass::forward), heads());
  const auto step = std::find_if(steps_.begin(), steps_.end(), [which](const Step& one) { return one.to == which; });
  if (step != steps_.end()) return projected(*step);
  const std::int64_t width = problem_.heads_q * problem_.dim_qk, first = which == q   ? 0
                                                                         : which == k ? width
                                                                                      : 2 * width;
  return columns_of(activation(qkv), first, width);
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::projected(const Step& step) -> Matrix<Number> {
  const auto weight = cast<Number>(at(inputs_->weight, step.part));
  Matrix<Number> result = arithmetic_.multiply(activation(step.from), transposed(weight));
  const Matrix<float>& bias = at(inputs_->bias, step.part);
  for (std::int64_t i = 0; bias.rows > 0 && i < result.rows; ++i) {
    for (std::int64_t c = 0; c < result.columns; ++c) result.row(i)[c] += static_cast<Number>(bias.row(0)[c]);
  }
  if (step.to != Activation::y) arithmetic_.store(result);
  return result;
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::gradient(Activation which) -> const Matrix<Number>& {
  using enum Activation;
  auto& known = slot(gradients_, which);
  if (known) return *known;
  if (which == y) {
    known = cast<Number>(inputs_->dy);
  } else if (which == qkv) {
    known = side_by_side(side_by_side(gradient(q), gradient(k)), gradient(v));
  } else if (which == q || which == k || which == v) {
    attend_backward();
  } else {
    known = gradient_of_input(which);
    if (which != x && which != x_kv) arithmetic_.store(*known);
  }
  return *known;
}

// One sum over all projections that read it.
template <class Arithmetic>
auto LayerValues<Arithmetic>::gradient_of_input(Activation which) -> Matrix<Number> {
  Matrix<Number> gradients, weights;
  for (const Step& step : steps_) {
    if (step.from != which) continue;
    gradients = side_by_side(gradients, gradient(step.to));
    weights = stacked(std::move(weights), cast<Number>(at(inputs_->weight, step.part)));
  }
  return arithmetic_.multiply(gradients, weights);
}

template <class Arithmetic>
void LayerValues<Arithmetic>::attend_backward() {
  using enum Activation;
  Heads<Number> gradients = arithmetic_.attend_backward(attention_of(problem_, Pass::backward), heads(),
                                                        activation(attention), gradient(attention));
  slot(gradients_, q) = std::move(gradients.q);
  slot(gradients_, k) = std::move(gradients.k);
  slot(gradients_, v) = std::move(gradients.v);
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::weight_gradient(Part part) -> Matrix<Number> {
  const Step& step = step_of(part);
  return arithmetic_.multiply(transposed(gradient(step.to)), activation(step.from),
                              cast<Number>(at(inputs_->dweight, part)));
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::bias_gradient(Part part) -> Matrix<Number> {
  const Matrix<Number>& gradients = gradient(step_of(part).to);
  Matrix<Number> ones(1, gradients.rows);
  std::fill(ones.values.begin(), ones.values.end(), Number{1});
  return arithmetic_.multiply(ones, gradients, cast<Number>(at(inputs_->dbias, part)));
}

template class LayerValues<ExactArithmetic>;
template class LayerValues<PlainArithmetic>;

}  // namespace fovea::verification
