// The plain evaluation of a bf16 model: the formulas of src/model/model.h in fp32, sums term by term in order. It
// rounds to bf16 where docs/kernels/model.md says, and nowhere else.
#pragma once

#include <vector>

#include "expected_model.h"

namespace fovea::model {

float rounded_to_bf16(float value);

// A bf16 model rounds the matrices of products, but neither the embedding nor the weights of norms.
inline bool is_rounded(const ParameterMap& map, const Parameter& one) {
  return !one.is_vector && one.offset != map.embedding;
}
std::vector<float> rounded_weights(const ParameterMap& map, const std::vector<float>& masters);

struct PlainResult {
  double loss = 0;
  std::vector<float> gradients;  // with the map's layout
};
PlainResult plain_result(const ExpectedBatch& batch, const std::vector<float>& masters);

}  // namespace fovea::model
