// The arguments of the passes over rows of scores, and their kernels.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_ref.h"

namespace fovea::cuda::baselines {

// The log-sum-exp of factor * scores, in parts, because one float would lose small digits besides a large score.
struct LogSumExp {
  float maximum;   // the largest score, after the sign flip of RowPass
  float log_sum;   // log of the sum of exp(|factor| * (score - maximum)); -infinity if there is no score
  float rounding;  // the rounding error of log_sum
};

// Matrices [len_q, len_k], one per (batch, head), with contiguous columns. Strides count elements; head_stride is from
// one (batch, head) to the next.
template <class Pointer>
struct BasicRowMatrix {
  Pointer data = nullptr;
  std::int64_t head_stride = 0, row_stride = 0;
};
using RowMatrix = BasicRowMatrix<void*>;
using ConstRowMatrix = BasicRowMatrix<const void*>;

// A pass over all rows of score matrices [batch, heads_q, len_q, len_k]. An fp32 result may be written in place.
struct RowPass {
  std::int64_t rows = 0;
  int heads_q = 1, len_q = 0, len_k = 0;
  int window_end = 0;   // query i sees the keys before i + window_end
  bool masked = false;  // false: reads all keys; masked scores are -inf
  int threads = 32;     // per row, a power of two
  // Scores are factor times the matrix. A softmax flips the matrix's sign if the factor is negative, and multiplies by
  // |factor|. If that is 0, it uses the smallest number instead, so that a masked pair's -inf stays -inf.
  float factor = 1.0f, abs_scale = 1.0f, sign = 1.0f;
  RowMatrix scores;  // fp32: S, or dP for softmax_gradient
  RowMatrix to;
  ConstRowMatrix probabilities;  // for softmax_gradient
  union {
    TensorRef lse = {};        // written by softmax and log_sum_exp; data may be null
    ConstTensorRef given_lse;  // read by exponentials if log_sum_exps is null
  };
  LogSumExp* log_sum_exps = nullptr;  // one per row
  const float* delta = nullptr;       // of the first row; null: rowsum(P * dP) / rowsum(P)
  std::int64_t delta_stride = 0;      // from one (batch, head) to the next
};

enum class Step : std::uint8_t {
  scale,             // to = factor * scores
  mask,              // masked scores become -inf; the others do not change
  softmax,           // to = probabilities; writes lse; rows of up to kLongestSoftmax columns
  log_sum_exp,       // log_sum_exps = log-sum-exp of the visible scores; writes lse
  exponentials,      // to = exp(score - lse), 0 if masked; the lse is log_sum_exps or given_lse
  softmax_gradient,  // to = dS = P * (dP - delta) * factor
};

constexpr int kRowValues = 32;  // per thread, in registers; half as many in exponentials and softmax_gradient
constexpr int kMostRowThreads = 512;
constexpr int kLongestSoftmax = kMostRowThreads * kRowValues;

// The kernel of a pass. `element` is the type of the probabilities that it reads, `to` the type of its result.
// `vector`: all rows start at multiples of 16 bytes (fp32) or 8 (16 bits).
const void* row_pass_kernel(Step step, ElementKind element, ElementKind to, bool vector);

}  // namespace fovea::cuda::baselines
