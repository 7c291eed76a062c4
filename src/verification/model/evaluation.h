// Evaluates a model from the formulas of src/model/model.h: the reference in double precision, and the plain
// evaluation, which rounds to the model's type where docs/kernels/model.md says. It calls nothing of src/model but the
// parameter map.
#pragma once

#include <cstdint>
#include <vector>

#include "model/optimizer.h"
#include "verification/layers/evaluation.h"

namespace fovea::verification {

// Arrays of floats have the layout of the parameter map.
struct ModelInputs {
  explicit ModelInputs(const model::Config& the_config) : config(the_config), map(the_config) {}

  model::Config config;
  model::Extent extent;
  DeviceKind device = DeviceKind::cpu;  // that computed the answers: products on a GPU may have been tensor cores'
  model::ParameterMap map;
  std::vector<std::int32_t> tokens, targets;
  std::vector<float> weights;    // fp32; products of a bf16 model read them rounded
  std::vector<float> gradients;  // what backward adds to; empty: nothing
};

// The optimizer's step, and its moments before it.
struct ModelUpdate {
  model::AdamW settings;
  double learning_rate = 0;
  std::int64_t step = 0;
  std::vector<float> first_moment, second_moment;
};

template <class Number>
struct ModelAnswer {
  Matrix<Number> losses;          // a row for each sequence
  std::vector<Number> gradients;  // of the mean loss, and what was there; empty if only forward was asked for
};
template <class Arithmetic>
ModelAnswer<typename Arithmetic::Number> evaluate(const ModelInputs& inputs, Pass pass, const Arithmetic& arithmetic);

// The weights after a step of AdamW (Loshchilov, Hutter, arXiv 1711.05101, algorithm 2) with the gradients clipped by
// their norm. A norm that is not finite changes nothing.
template <class Number>
std::vector<Number> updated(const ModelInputs& inputs, const ModelUpdate& update, const std::vector<Number>& gradients);

extern template ModelAnswer<double> evaluate(const ModelInputs&, Pass, const ExactArithmetic&);
extern template ModelAnswer<float> evaluate(const ModelInputs&, Pass, const PlainArithmetic&);
extern template std::vector<double> updated(const ModelInputs&, const ModelUpdate&, const std::vector<double>&);
extern template std::vector<float> updated(const ModelInputs&, const ModelUpdate&, const std::vector<float>&);

}  // namespace fovea::verification
