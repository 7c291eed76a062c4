// Norms, rotary embedding and the shared key of expected layers, row by row from their formulas.
#pragma once

#include "expected_layer.h"

namespace fovea::layers {

// `norm`: q, k, q_latent or kv_latent; its weight is the input NAME.norm, if there is one.
Matrix transformed(const LayerProblem& problem, const Matrices& in, const Matrix& rows, const std::string& norm);
// The gradient of `rows` from that of the transformed ones; stores the gradient of the weight.
Matrix transform_gradient(const LayerProblem& problem, const Matrices& in, const Matrix& rows, const Matrix& gradient,
                          const std::string& norm, Matrices& gradients);

// Each head of k: its own columns, then the rotated shared key.
Matrix with_shared_key(const LayerProblem& problem, const Matrix& own, const Matrix& key);
struct KeyGradients {
  Matrix own, key;
};
KeyGradients key_gradients(const LayerProblem& problem, const Matrix& gradient);

Matrix columns_of(const Matrix& m, std::int64_t first, std::int64_t count);
// Columns of b behind those of a.
Matrix beside(const Matrix& a, const Matrix& b);

}  // namespace fovea::layers
