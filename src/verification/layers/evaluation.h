// Evaluates a layer step by step from its inputs: the reference in double precision, and the plain evaluation in the
// inputs' type. It calls nothing of the library's layers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/layers.h"
#include "verification/layers/evaluator.h"
#include "verification/layers/matrix.h"
#include "verification/layers/rows.h"
#include "verification/tensor_set.h"

namespace fovea::verification {

enum class Part : std::uint8_t { qkv, q_down, q, kv_down, k, v, out };  // the projections
inline constexpr Part kParts[] = {Part::qkv, Part::q_down, Part::q, Part::kv_down, Part::k, Part::v, Part::out};
std::string name_of(Part part);

template <class All>
auto& at(All& all, Part part) {
  switch (part) {
    case Part::qkv:
      return all.qkv;
    case Part::q_down:
      return all.q_down;
    case Part::q:
      return all.q;
    case Part::kv_down:
      return all.kv_down;
    case Part::k:
      return all.k;
    case Part::v:
      return all.v;
    case Part::out:
      break;
  }
  return all.out;
}

enum class NormPart : std::uint8_t { q, k, q_latent, kv_latent };
inline constexpr NormPart kNormParts[] = {NormPart::q, NormPart::k, NormPart::q_latent, NormPart::kv_latent};
std::string name_of(NormPart part);  // q_norm

template <class All>
auto& at(All& all, NormPart part) {
  switch (part) {
    case NormPart::q:
      return all.q;
    case NormPart::k:
      return all.k;
    case NormPart::q_latent:
      return all.q_latent;
    case NormPart::kv_latent:
      break;
  }
  return all.kv_latent;
}

// Latents, q and k come from what is projected by their norm and rotary embedding.
enum class Activation : std::uint8_t {
  x,
  x_kv,
  q_down,
  kv_down,
  q_latent,
  kv_latent,
  qkv,
  q_projected,
  k_projected,
  q,
  k,
  v,
  attention,
  y
};
inline constexpr std::size_t kActivations = 14;

// A projection: to = from weight^T + bias.
struct Step {
  Part part;
  Activation from, to;
};
std::vector<Step> steps_of(const LayerProblem& problem);

// Everything that a layer reads, as matrices: rows of x, x_kv and dy are (batch, len). dy is empty in forward.
struct LayerInputs {
  Matrix<float> x, x_kv, dy;
  PerProjection<Matrix<float>> weight, bias;     // a bias is one row; empty if there is none
  PerProjection<Matrix<float>> dweight, dbias;   // what the call adds to; empty if it overwrites them
  PerNorm<Matrix<float>> norm = {}, dnorm = {};  // one row each
};
LayerInputs read_inputs(const LayerProblem& problem, const TensorSet& tensors);

// A copy with every element moved by up to an eighth, rounded to the problem's type. `by_value`: equal elements of a
// tensor stay equal, so that the roundings of equal keys do not average out.
LayerInputs moved(const LayerProblem& problem, const LayerInputs& inputs, std::uint64_t number, bool by_value);

// An arithmetic keeps a reference to its evaluator.
class ExactArithmetic {
 public:
  using Number = double;
  explicit ExactArithmetic(const LayerEvaluator& evaluator = layer_evaluator_on_cpu()) : evaluator_(&evaluator) {}
  Matrix<double> multiply(const Operand<double>& a, const Operand<double>& b, const Matrix<double>& added = {}) const {
    return evaluator_->multiply(a, b, added);
  }
  Matrix<double> multiply(const Operand<double>& a, const Operand<float>& b) const {
    return evaluator_->multiply(a, b);
  }
  void store(Matrix<double>&) const {}
  Matrix<double> attend(const AttentionProblem& p, const Heads<double>& heads) const {
    return evaluator_->attend(p, heads);
  }
  Heads<double> attend_backward(const AttentionProblem& p, const Heads<double>& heads, const Matrix<double>&,
                                const Matrix<double>& dout) const {
    return evaluator_->attend_backward(p, heads, dout);
  }

 private:
  const LayerEvaluator* evaluator_;
};

// Sums in fp32, in the variant's order; activations between the parts are rounded to the inputs' type.
class PlainArithmetic {
 public:
  using Number = float;
  PlainArithmetic(DType dtype, const PlainVariant& variant, const LayerEvaluator& evaluator = layer_evaluator_on_cpu())
      : dtype_(dtype), variant_(variant), evaluator_(&evaluator) {}
  Matrix<float> multiply(const Operand<float>& a, const Operand<float>& b, const Matrix<float>& added = {}) const {
    return evaluator_->multiply(a, b, added, variant_);
  }
  void store(Matrix<float>& m) const { round_to(dtype_, m); }
  Matrix<float> attend(const AttentionProblem& p, const Heads<float>& heads) const {
    return evaluator_->attend(p, heads, variant_);
  }
  Heads<float> attend_backward(const AttentionProblem& p, const Heads<float>& heads, const Matrix<float>& out,
                               const Matrix<float>& dout) const {
    return evaluator_->attend_backward(p, heads, out, dout, variant_);
  }

 private:
  DType dtype_;
  PlainVariant variant_;
  const LayerEvaluator* evaluator_;
};

// The values are computed when they are first asked for.
template <class Arithmetic>
class LayerValues {
 public:
  using Number = typename Arithmetic::Number;
  using Rows = std::vector<std::int64_t>;  // of a result; empty: all

  LayerValues(const LayerProblem& problem, std::shared_ptr<const LayerInputs> inputs, Arithmetic arithmetic);

  // y and the gradients of x, x_kv and the parameters are sums that are not rounded to a type.
  const Matrix<Number>& activation(Activation which);
  const Matrix<Number>& gradient(Activation which);
  Matrix<Number> weight_gradient(Part part, const Rows& rows = {});
  Matrix<Number> bias_gradient(Part part);
  Matrix<Number> norm_gradient(NormPart part);
  // Of y, and of the gradients of x and x_kv. A large problem is compared in few rows, and only these are computed.
  Matrix<Number> output(const Rows& rows) { return projected(step_of(Part::out), rows); }
  Matrix<Number> input_gradient(Activation which, const Rows& rows) { return gradient_of_input(which, rows); }

 private:
  using Slots = std::array<std::optional<Matrix<Number>>, kActivations>;

  Matrix<Number> computed(Activation which);
  Matrix<Number> projected(const Step& step, const Rows& rows = {});
  Matrix<Number> derived(Activation which);
  Matrix<Number> gradient_of_input(Activation which, const Rows& rows = {});
  Matrix<Number> gradient_of_projected(Activation which);
  Matrix<Number> shared_key_gradient();
  RowTransform transform_of(NormPart part) const;
  RowTransform transform_of_shared_key(std::int64_t heads) const;
  Matrix<Number> read_rows(NormPart part);
  RowGradient<Number> row_gradient(NormPart part);
  Heads<Number> heads() { return {activation(Activation::q), activation(Activation::k), activation(Activation::v)}; }
  void attend_backward();
  const Step& step_of(Part part) const;
  std::optional<Matrix<Number>>& slot(Slots& slots, Activation which) { return slots[static_cast<std::size_t>(which)]; }

  LayerProblem problem_;
  std::shared_ptr<const LayerInputs> inputs_;
  Arithmetic arithmetic_;
  std::vector<Step> steps_;
  Slots activations_, gradients_;
};

extern template class LayerValues<ExactArithmetic>;
extern template class LayerValues<PlainArithmetic>;

}  // namespace fovea::verification
