// The plain same-precision evaluation: the textbook formula with fp32 sums, P and dS stored in the inputs' type. Its
// error against double precision is the measure of what any implementation may err.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/attention.h"

namespace fovea::verification {

// What the formula leaves open. Rounding errors of one way are a matter of luck; those of several are not.
struct Way {
  std::int64_t start = 0;  // where sums begin
  // One loop instead of one pass per step: products enter their sums unrounded, weights and dS stay in fp32, the heads
  // of a group go on with one sum. Sums run backwards.
  bool fused = false;
  bool fused_delta = false;   // products enter delta unrounded as well, which one loop for dP may share or not
  bool scaled_first = false;  // dS is stored with the scale in it; else the scale is the gradients'
  std::int64_t operator()(std::int64_t n, std::int64_t count) const {
    return fused ? (2 * count - 1 - n - start % count) % count : (n + start) % count;
  }
};

// One query head with the key head that it reads; the same calls as reference::Head.
class PlainHead {
 public:
  PlainHead(const AttentionProblem& problem, const ForwardTensors& tensors, std::int64_t batch, std::int64_t head,
            Way way);
  PlainHead(const AttentionProblem& problem, const BackwardTensors& tensors, std::int64_t batch, std::int64_t head,
            Way way);

  double forward_row(std::int64_t i, double* out);
  void query_gradient(std::int64_t i, double* dq);
  void add_key_gradients(std::int64_t j, double* dk, double* dv);

 private:
  struct Matrix {
    std::int64_t rows, columns;
    std::vector<float> values, transposed;
  };
  Matrix read(const TensorView& view, std::int64_t batch, std::int64_t head) const;
  void multiply(const float* row, const Matrix& matrix, std::vector<float>& products) const;
  void add_row(std::vector<float>& sums, float factor, const Matrix& matrix, std::int64_t row) const;
  float stored(float value) const;  // rounded to the inputs' type, unless all is fused
  float exponent(std::int64_t i, float score) const;
  float probability(std::int64_t i, float score) const;

  const AttentionProblem& problem_;
  Way way_;
  Matrix q_, k_, v_, dout_;
  std::vector<float> largest_, sum_;  // [len_q]: P = exp(scale score - largest) / sum
  std::vector<float> delta_;          // [len_q]
  std::vector<float> scores_, dp_;    // scratch of one row or column
};

}  // namespace fovea::verification
