// The plain evaluation: the textbook formula with fp32 sums, P and dS stored in the inputs' type. Its error against the
// reference bounds the error of every implementation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/float16.h"
#include "fovea/attention.h"
#include "verification/row_sums.h"

namespace fovea::verification {

// The indices from `begin` to before `end`.
struct IndexRange {
  std::int64_t begin, end;
};

// Choices that the formula leaves open. The rounding error of one variant is a matter of luck, so several are measured.
struct PlainVariant {
  std::int64_t start = 0;  // the index at which sums begin
  // One loop instead of one pass per step: products are added unrounded, and P and dS stay in fp32. The heads of a
  // group share one sum, which starts from the gradient's former values. Sums run backwards.
  bool fused = false;
  bool fused_delta = false;   // delta adds unrounded products too
  bool scaled_first = false;  // the scale multiplies dS before it is stored; else it multiplies dQ and dK
  // As FlashAttention does: exp2 of scores times scale * log2(e), one rounded constant. Backward multiplies lse by
  // log2(e) and rounds it again.
  bool base_2 = false;
  // As FlashAttention does: forward divides out by the sum of exp(s - max), and backward's P is exp(s - lse). Else P is
  // divided by the sum before it is stored.
  bool divided_last = false;
  bool tensor_cores = false;  // sums are rounded as tensor cores do
  Rounding rounding() const {
    return tensor_cores ? Rounding::tensor_cores : fused ? Rounding::sums : Rounding::products;
  }
  std::int64_t operator()(std::int64_t n, std::int64_t count) const {
    return fused ? (2 * count - 1 - n - start % count) % count : (n + start) % count;
  }
  // Calls work(index) for the range's part of `count` indices, in this order.
  template <class Work>
  void for_each(std::int64_t count, IndexRange range, const Work& work) const {
    if (count == 0) return;
    // Where the order goes on at the other end.
    const std::int64_t turn = fused ? count - start % count : start % count;
    const std::int64_t low = std::clamp(turn, range.begin, range.end);
    if (fused) {
      for (std::int64_t n = low; n-- > range.begin;) work(n);
      for (std::int64_t n = range.end; n-- > low;) work(n);
    } else {
      for (std::int64_t n = low; n < range.end; ++n) work(n);
      for (std::int64_t n = range.begin; n < low; ++n) work(n);
    }
  }
};

// The value rounded to the type.
inline float rounded_to(DType type, float value) {
  if (type == DType::fp32) return value;
  return type == DType::bf16 ? core::bf16_to_float(core::float_to_bf16(value))
                             : core::fp16_to_float(core::float_to_fp16(value));
}

// The n-th variant that is measured. Eight consecutive ones have every form.
PlainVariant plain_variant(std::int64_t n);

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
    std::vector<float> values, transposed;  // the latter where it is multiplied by rows
    const float* row(std::int64_t n) const { return values.data() + n * columns; }
    void transpose();
  };
  Matrix read(const TensorView& view, std::int64_t batch, std::int64_t head) const;
  // Both are without gaps: a mask hides what is before and after them.
  IndexRange keys_seen_by(std::int64_t query) const;
  IndexRange queries_that_see(std::int64_t key) const;
  // products[n] = row . (row n of the matrix) for n in the range.
  void multiply(const float* row, const Matrix& matrix, IndexRange range, std::vector<float>& products) const;
  float stored(float value) const;                       // rounds to the inputs' type, unless fused
  float unit() const;                                    // of exponents: 1, or log2(e) in base 2
  float factor() const;                                  // of scores: the scale in that unit
  float exponential(std::int64_t i, float score) const;  // exp(s - max)
  float probability(std::int64_t i, float score) const;

  const AttentionProblem& problem_;
  PlainVariant variant_;
  Matrix q_, k_, v_, dout_;
  std::vector<float> largest_, sum_;  // [len_q]: P = exp(factor score - largest) / sum
  std::vector<float> delta_;          // [len_q]
  std::vector<float> scores_, dp_;    // scratch of one row or column
};

}  // namespace fovea::verification
