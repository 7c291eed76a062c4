// The plain evaluation: the textbook formula with fp32 sums, P and dS stored in the inputs' type. Its error against the
// reference bounds the error of every implementation.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/attention.h"

namespace fovea::verification {

// Choices that the formula leaves open. The rounding error of one variant is a matter of luck, so several are measured.
struct PlainVariant {
  std::int64_t start = 0;  // the index at which sums begin
  // One loop instead of one pass per step: products are added unrounded, P and dS stay in fp32, and the heads of a
  // group share one sum. Sums run backwards.
  bool fused = false;
  bool fused_delta = false;   // delta adds unrounded products too
  bool scaled_first = false;  // the scale multiplies dS before it is stored; else it multiplies dQ and dK
  bool base_2 = false;        // exp2 of scores times scale * log2(e), one rounded constant, as FlashAttention does
  bool divided_last = false;  // out is divided by the sum of exp(s - max); else P is, before it is stored
  std::int64_t operator()(std::int64_t n, std::int64_t count) const {
    return fused ? (2 * count - 1 - n - start % count) % count : (n + start) % count;
  }
};

// One query head with the key head that it reads; the same calls as reference::Head.
class PlainHead {
 public:
  PlainHead(const AttentionProblem& problem, const ForwardTensors& tensors, std::int64_t batch, std::int64_t head,
            PlainVariant variant);
  PlainHead(const AttentionProblem& problem, const BackwardTensors& tensors, std::int64_t batch, std::int64_t head,
            PlainVariant variant);

  double forward_row(std::int64_t i, double* out);
  void query_gradient(std::int64_t i, double* dq);
  void add_key_gradients(std::int64_t j, double* dk, double* dv);

 private:
  struct Matrix {
    std::int64_t rows, columns;
    std::vector<float> values, transposed;
  };
  struct Range {
    std::int64_t begin, end;
  };
  Matrix read(const TensorView& view, std::int64_t batch, std::int64_t head) const;
  Range keys_seen_by(std::int64_t query) const;
  Range queries_that_see(std::int64_t key) const;
  // products[n] = row . (row n of the matrix) for n in the range.
  void multiply(const float* row, const Matrix& matrix, Range range, std::vector<float>& products) const;
  void add_row(std::vector<float>& sums, float factor, const Matrix& matrix, std::int64_t row) const;
  float stored(float value) const;                  // rounds to the inputs' type, unless fused
  float factor() const;                             // of scores: the scale, in base 2 times log2(e)
  float weight(std::int64_t i, float score) const;  // exp(s - max)
  float probability(std::int64_t i, float score) const;

  const AttentionProblem& problem_;
  PlainVariant variant_;
  Matrix q_, k_, v_, dout_;
  std::vector<float> largest_, sum_;  // [len_q]: P = exp(factor score - largest) / sum
  std::vector<float> delta_;          // [len_q]
  std::vector<float> scores_, dp_;    // scratch of one row or column
};

}  // namespace fovea::verification
