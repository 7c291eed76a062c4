// The parts of a layer's evaluation that take most of its time: products, and attention between the heads.
#pragma once

#include <optional>

#include "fovea/attention.h"
#include "verification/attention/plain.h"
#include "verification/layers/matrix.h"

namespace fovea::verification {

// q, k and v, or their gradients: rows are (batch, len), columns are (head, dim).
template <class Number>
struct Heads {
  Matrix<Number> q, k, v;
};

// The CPU evaluates them. A program may override this for problems on another device.
class LayerEvaluator {
 public:
  virtual ~LayerEvaluator() = default;

  // As product() of matrix.h.
  virtual Matrix<double> multiply(const Operand<double>& a, const Operand<double>& b,
                                  const Matrix<double>& added) const;
  virtual Matrix<double> multiply(const Operand<double>& a, const Operand<float>& b) const;
  virtual Matrix<float> multiply(const Operand<float>& a, const Operand<float>& b, const Matrix<float>& added,
                                 const PlainVariant& variant) const;

  // By the formula.
  virtual Matrix<double> attend(const AttentionProblem& p, const Heads<double>& heads) const;
  virtual Heads<double> attend_backward(const AttentionProblem& p, const Heads<double>& heads,
                                        const Matrix<double>& dout) const;

  // As attention's plain evaluation; results are rounded to the problem's result type.
  virtual Matrix<float> attend(const AttentionProblem& p, const Heads<float>& heads, const PlainVariant& variant) const;
  virtual Heads<float> attend_backward(const AttentionProblem& p, const Heads<float>& heads, const Matrix<float>& out,
                                       const Matrix<float>& dout, const PlainVariant& variant) const;
};

// The variant whose forward computes the lse that backward reads. Empty: backward sums the exponentials itself.
std::optional<PlainVariant> variant_of_lse(const PlainVariant& backward);

const LayerEvaluator& layer_evaluator_on_cpu();

}  // namespace fovea::verification
