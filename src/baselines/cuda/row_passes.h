// The arguments of the passes over rows of scores, and their kernels.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_ref.h"

namespace fovea::cuda::baselines {

// The log-sum-exp of factor * scores, in parts, because one float would lose small digits besides a large score.
struct LogSumExp {
  float origin;    // the score with the largest factor * score, with flipped sign if the factor is negative
  float log_sum;   // log of the sum of exp(|factor| * (score - origin)); -infinity if there is no score
  float left_out;  // the rounding error of log_sum
};

// Matrices [len_q, len_k] of the heads of all batch elements, with contiguous columns: the strides of heads and rows,
// in elements.
struct RowMatrix {
  void* data = nullptr;
  std::int64_t head = 0, row = 0;
};

// A pass over all rows of score matrices [batch, heads_q, len_q, len_k]. An fp32 result may be written in place.
struct RowPass {
  std::int64_t rows = 0;
  int heads_q = 1, len_q = 0, len_k = 0;
  int window_end = 0;   // query i sees the keys before i + window_end
  bool masked = false;  // false: reads all keys; hidden scores are -inf
  int threads = 32;     // per row, a power of two
  // Scores are factor times the matrix. A softmax flips the matrix's sign if the factor is negative, and multiplies by
  // |factor|. If that is 0, it uses the smallest number instead, so that a hidden pair's -inf stays -inf.
  float factor = 1.0f, abs_scale = 1.0f, sign = 1.0f;
  RowMatrix scores;  // fp32: S, or dP for `differentiate`
  RowMatrix to;
  RowMatrix probabilities;          // for `differentiate`
  TensorRef lse;                    // data may be null
  LogSumExp* statistics = nullptr;  // of each row
  const float* delta = nullptr;     // of the first row; null: rowsum(P * dP) / rowsum(P)
  std::int64_t delta_head = 0;      // stride of heads
};

enum class Step : std::uint8_t {
  scale,          // to = factor * scores
  hide,           // hidden scores become -inf; the others do not change
  softmax,        // to = probabilities; writes lse; rows of up to kLongestSoftmax columns
  log_sum_exp,    // statistics = log-sum-exp of the visible scores; writes lse
  exponentials,   // to = exp(score - statistics), 0 if hidden; without statistics, reads lse instead
  differentiate,  // to = dS = P * (dP - delta) * factor
};

constexpr int kRowValues = 32;  // per thread, in registers; half as many if a pass keeps two matrices
constexpr int kMostRowThreads = 512;
constexpr int kLongestSoftmax = kMostRowThreads * kRowValues;

// The kernel of a pass. `element` is the type of the probabilities that it reads, `to` the type of its result.
// `vector`: all rows start at multiples of 16 bytes (fp32) or 8 (16 bits).
const void* row_pass_kernel(Step step, ElementKind element, ElementKind to, bool vector);

}  // namespace fovea::cuda::baselines
