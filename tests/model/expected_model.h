// The mean loss of a batch in double precision, by loops that follow the formulas of src/model/model.h; its gradient by
// central differences; and steps of AdamW.
#pragma once

#include <cstdint>
#include <vector>

#include "core/float16.h"
#include "model/optimizer.h"

namespace fovea::model {

// Sequences are `length` tokens long.
struct ExpectedBatch {
  const Config& config;
  const ParameterMap& map;
  const std::vector<std::int32_t>&tokens, &targets;
  std::int64_t length;
};

// Weights and gradients have the map's layout.
double expected_loss(const ExpectedBatch& batch, const std::vector<double>& weights);
std::vector<double> expected_gradient(const ExpectedBatch& batch, const std::vector<double>& weights);

// Weights as the products of a bf16 model read them: the embedding and the weights of norms are not rounded.
template <class Number>
std::vector<Number> rounded_weights(const ParameterMap& map, std::vector<Number> weights) {
  for (const Parameter& one : map.all()) {
    if (one.is_vector || one.offset == map.embedding) continue;
    for (auto i = static_cast<std::size_t>(one.offset); i < static_cast<std::size_t>(one.offset + one.count()); ++i)
      weights[i] = core::bf16_to_float(core::float_to_bf16(static_cast<float>(weights[i])));
  }
  return weights;
}

struct ExpectedState {
  std::vector<double> weights, m, v;
};
// Step 0, 1, .. with the gradient that clipping leaves: Loshchilov, Hutter, arXiv 1711.05101, algorithm 2.
void expected_step(const ParameterMap& map, const AdamW& settings, double learning_rate, std::int64_t step,
                   const std::vector<double>& gradient, ExpectedState& state);

}  // namespace fovea::model
