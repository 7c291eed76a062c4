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

Matrix<float> read(const TensorView& view) {
  if (!view) return {};
  return by_rows<float>(view.sizes[0] * view.sizes[2], view.sizes[3], [&](std::int64_t row, float* to) {
    const std::int64_t b = row / view.sizes[2], i = row % view.sizes[2];
    for (std::int64_t c = 0; c < view.sizes[3]; ++c)
      to[c] = core::load_as_float(view.data, view.dtype, b * view.strides[0] + i * view.strides[2] + c);
  });
}

// Columns [first, first + count) of every head.
template <class Number>
Matrix<Number> columns_of_heads(const Matrix<Number>& m, std::int64_t heads, std::int64_t first, std::int64_t count) {
  Matrix<Number> result(m.rows, 0);
  for (std::int64_t h = 0; h < heads; ++h)
    result = side_by_side(result, columns_of(m, h * (m.columns / heads) + first, count));
  return result;
}

bool does_nothing(const RowTransform& transform) { return transform.weight.rows == 0 && !transform.turn; }

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

std::string name_of(NormPart part) {
  constexpr const char* kNames[] = {"q_norm", "k_norm", "q_latent_norm", "kv_latent_norm"};
  return kNames[static_cast<std::size_t>(part)];
}

std::vector<Step> steps_of(const LayerProblem& p) {
  using enum Activation;
  const Activation keys_from = p.cross ? x_kv : x;
  const Step last{Part::out, attention, y};
  if (p.kind == LayerKind::mha_fused) return {{Part::qkv, x, qkv}, last};
  if (p.kind != LayerKind::mla)
    return {{Part::q, x, q_projected}, {Part::k, keys_from, k_projected}, {Part::v, keys_from, v}, last};
  return {{Part::q_down, x, q_down},         {Part::q, q_latent, q_projected}, {Part::kv_down, keys_from, kv_down},
          {Part::k, kv_latent, k_projected}, {Part::v, kv_latent, v},          last};
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
  for (const NormPart part : kNormParts) {
    at(inputs.norm, part) = read(tensors[name_of(part)]);
    if (p.accumulate) at(inputs.dnorm, part) = read(tensors["d" + name_of(part)]);
  }
  return inputs;
}

LayerInputs moved(const LayerProblem& p, const LayerInputs& inputs, std::uint64_t number, bool by_value) {
  LayerInputs result = inputs;
  std::uint64_t stream = 0;
  const auto move = [&](Matrix<float>& m, DType dtype) {
    ++stream;
    double sum = 0;
    for (const float value : m.values) sum += std::isfinite(value) ? std::abs(static_cast<double>(value)) : 0;
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
  for (const NormPart part : kNormParts) {
    move(at(result.norm, part), p.dtype);
    move(at(result.dnorm, part), DType::fp32);
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
  const std::int64_t width = problem_.heads_q * problem_.dim_qk;
  if (which == q_projected) return columns_of(activation(qkv), 0, width);
  if (which == k_projected) return columns_of(activation(qkv), width, width);
  if (which == v) return columns_of(activation(qkv), 2 * width, width);
  return derived(which);
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::projected(const Step& step, const Rows& rows) -> Matrix<Number> {
  const Operand weight(at(inputs_->weight, step.part), true);
  const Matrix<Number>& from = activation(step.from);
  Matrix<Number> result =
      rows.empty() ? arithmetic_.multiply(from, weight) : arithmetic_.multiply(chosen_rows(from, rows), weight);
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
  switch (which) {
    case y:
      known = cast<Number>(inputs_->dy);
      break;
    case q:
    case k:
    case v:
      attend_backward();
      break;
    case qkv:
      known = side_by_side(side_by_side(gradient(q_projected), gradient(k_projected)), gradient(v));
      break;
    case q_down:
    case kv_down:
    case q_projected:
    case k_projected:
      known = gradient_of_projected(which);
      break;
    case x:
    case x_kv:
      known = gradient_of_input(which);
      break;
    case q_latent:
    case kv_latent:
    case attention:
      known = gradient_of_input(which);
      arithmetic_.store(*known);
      break;
  }
  return *known;
}

// One sum over all projections that read it.
template <class Arithmetic>
auto LayerValues<Arithmetic>::gradient_of_input(Activation which, const Rows& rows) -> Matrix<Number> {
  Matrix<Number> gradients;
  Matrix<float> weights;
  for (const Step& step : steps_) {
    if (step.from != which) continue;
    const Matrix<Number>& dy = gradient(step.to);
    gradients = side_by_side(gradients, rows.empty() ? dy : chosen_rows(dy, rows));
    weights = stacked(weights, at(inputs_->weight, step.part));
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
auto LayerValues<Arithmetic>::weight_gradient(Part part, const Rows& rows) -> Matrix<Number> {
  const Step& step = step_of(part);
  const Matrix<Number>&dy = gradient(step.to), &from = activation(step.from);
  const Matrix<float>& before = at(inputs_->dweight, part);
  if (rows.empty()) return arithmetic_.multiply(Operand(dy, true), from, cast<Number>(before));
  return arithmetic_.multiply(Operand(chosen_columns(dy, rows), true), from, cast<Number>(chosen_rows(before, rows)));
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::bias_gradient(Part part) -> Matrix<Number> {
  const Matrix<Number>& gradients = gradient(step_of(part).to);
  Matrix<Number> ones(1, gradients.rows);
  std::fill(ones.values.begin(), ones.values.end(), Number{1});
  return arithmetic_.multiply(ones, gradients, cast<Number>(at(inputs_->dbias, part)));
}

template <class Arithmetic>
RowTransform LayerValues<Arithmetic>::transform_of(NormPart part) const {
  const bool of_q = part == NormPart::q, of_heads = of_q || part == NormPart::k;
  RowTransform transform{.heads = !of_heads ? 1
                                  : of_q    ? problem_.heads_q
                                            : problem_.heads_kv,
                         .len = of_q || part == NormPart::q_latent ? problem_.len_q : problem_.len_k,
                         .weight = at(inputs_->norm, part),
                         .epsilon = problem_.epsilon};
  const std::int64_t shared = problem_.dim_shared;
  if (problem_.rotary && of_heads && (of_q || shared == 0))
    transform.turn = Turn{problem_.rotary->theta, problem_.rotary->pairs, shared > 0 ? problem_.dim_qk - shared : 0,
                          problem_.rotary->columns, of_q ? problem_.rotary->position_q : problem_.rotary->position_k};
  return transform;
}

template <class Arithmetic>
RowTransform LayerValues<Arithmetic>::transform_of_shared_key(std::int64_t heads) const {
  const Rotary& rotary = *problem_.rotary;
  return {.heads = heads,
          .len = problem_.len_k,
          .turn = Turn{rotary.theta, rotary.pairs, 0, problem_.dim_shared, rotary.position_k}};
}

// What is normalised and rotated. The shared key lies behind the latent.
template <class Arithmetic>
auto LayerValues<Arithmetic>::read_rows(NormPart part) -> Matrix<Number> {
  using enum Activation;
  switch (part) {
    case NormPart::q:
      return activation(q_projected);
    case NormPart::k:
      return activation(k_projected);
    case NormPart::q_latent:
      return activation(q_down);
    case NormPart::kv_latent:
      break;
  }
  return columns_of(activation(kv_down), 0, problem_.latent_kv);
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::derived(Activation which) -> Matrix<Number> {
  using enum Activation;
  const NormPart part = which == q          ? NormPart::q
                        : which == k        ? NormPart::k
                        : which == q_latent ? NormPart::q_latent
                                            : NormPart::kv_latent;
  const RowTransform transform = transform_of(part);
  Matrix<Number> rows = transformed(transform, read_rows(part));
  if (!does_nothing(transform)) arithmetic_.store(rows);
  const std::int64_t shared = problem_.dim_shared;
  if (which != k || shared == 0) return rows;
  Matrix<Number> key =
      transformed(transform_of_shared_key(1), columns_of(activation(kv_down), problem_.latent_kv, shared));
  arithmetic_.store(key);
  const std::int64_t own = problem_.dim_qk - shared;
  Matrix<Number> all(rows.rows, 0);
  for (std::int64_t h = 0; h < problem_.heads_kv; ++h)
    all = side_by_side(side_by_side(all, columns_of(rows, h * own, own)), key);
  return all;
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::row_gradient(NormPart part) -> RowGradient<Number> {
  using enum Activation;
  constexpr Activation kMade[] = {q, k, q_latent, kv_latent};
  return transform_gradient(transform_of(part), read_rows(part), gradient(kMade[static_cast<std::size_t>(part)]));
}

// The sum over all heads, turned back.
template <class Arithmetic>
auto LayerValues<Arithmetic>::shared_key_gradient() -> Matrix<Number> {
  const Matrix<Number>& whole = gradient(Activation::k);
  const std::int64_t shared = problem_.dim_shared, own = problem_.dim_qk - shared;
  Matrix<Number> sum(whole.rows, shared);
  for (std::int64_t row = 0; row < whole.rows; ++row) {
    for (std::int64_t h = 0; h < problem_.heads_kv; ++h) {
      for (std::int64_t c = 0; c < shared; ++c) sum.row(row)[c] += whole.row(row)[h * problem_.dim_qk + own + c];
    }
  }
  sum = transform_gradient(transform_of_shared_key(1), sum, sum).rows;
  arithmetic_.store(sum);
  return sum;
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::gradient_of_projected(Activation which) -> Matrix<Number> {
  using enum Activation;
  const std::int64_t shared = problem_.dim_shared;
  if (which == k_projected && shared > 0)
    return columns_of_heads(gradient(k), problem_.heads_kv, 0, problem_.dim_qk - shared);
  const NormPart part = which == q_projected   ? NormPart::q
                        : which == k_projected ? NormPart::k
                        : which == q_down      ? NormPart::q_latent
                                               : NormPart::kv_latent;
  Matrix<Number> rows = row_gradient(part).rows;
  if (!does_nothing(transform_of(part))) arithmetic_.store(rows);
  return which == kv_down && shared > 0 ? side_by_side(rows, shared_key_gradient()) : rows;
}

template <class Arithmetic>
auto LayerValues<Arithmetic>::norm_gradient(NormPart part) -> Matrix<Number> {
  const Matrix<Number> products = row_gradient(part).products;
  Matrix<Number> ones(1, products.rows);
  ones.values.assign(ones.values.size(), Number{1});
  return arithmetic_.multiply(ones, products, cast<Number>(at(inputs_->dnorm, part)));
}

template class LayerValues<ExactArithmetic>;
template class LayerValues<PlainArithmetic>;

}  // namespace fovea::verification
