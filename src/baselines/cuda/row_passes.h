// What the host hands to the passes over rows of scores, and where their kernels are.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_ref.h"

namespace fovea::cuda::baselines {

// Of factor * scores, in two parts, since their sum would lose what is small beside a large score.
struct LogSumExp {
  float origin;    // the score of the largest product, its sign flipped if the factor is negative
  float log_sum;   // of the exponentials of |factor| * (score - origin); -infinity if there is no score
  float left_out;  // of log_sum by its rounding
};

// Matrices [len_q, len_k] of the heads of all batch elements, neighbouring columns adjacent: elements from one to the
// next, and from row to row.
struct RowMatrix {
  void* data = nullptr;
  std::int64_t head = 0, row = 0;
};

// A pass over all rows of score matrices [batch, heads_q, len_q, len_k]. An fp32 result may stand in their place.
struct RowPass {
  std::int64_t rows = 0;
  int heads_q = 1, len_q = 0, len_k = 0;
  int window_end = 0;   // query i sees the keys before i + window_end
  bool masked = false;  // false: takes all keys, hidden scores hold -inf
  int threads = 32;     // of a row, a power of two
  // Scores are factor times what the matrix holds. Softmaxes flip its sign where the factor is negative and multiply by
  // |factor|, which they take as the least number if it is 0, so that a hidden pair's -inf stays -inf.
  float factor = 1.0f, abs_scale = 1.0f, sign = 1.0f;
  RowMatrix scores;  // fp32: scores, or gradients
  RowMatrix to;
  RowMatrix weights;                // probabilities, for their gradient
  TensorRef lse;                    // data may be null
  LogSumExp* statistics = nullptr;  // of each row
  const float* delta = nullptr;     // of the first row; null: the weighted mean of the gradients
  std::int64_t delta_head = 0;      // from head to head
};

enum class Step : std::uint8_t {
  scale,          // to = factor * scores
  hide,           // hidden scores become -inf, the others are not touched
  softmax,        // to = probabilities; writes lse; rows of up to kLongestSoftmax columns
  log_sum_exp,    // of the visible scores, to statistics; writes lse
  exponentials,   // to = exp(score - statistics), 0 where hidden; without statistics, lse is read for them
  differentiate,  // to = weights * (gradients - delta) * factor, from the weights' gradients to those of scores
};

constexpr int kRowValues = 32;  // of a thread, kept in registers; half of them where a pass has more to keep
constexpr int kMostRowThreads = 512;
constexpr int kLongestSoftmax = kMostRowThreads * kRowValues;

// The kernel of a pass over rows of weights of type `element`, its result of type `to`; `vector`: all rows start at
// multiples of 16 bytes (fp32) or 8 (16 bits).
const void* row_pass_kernel(Step step, ElementKind element, ElementKind to, bool vector);

}  // namespace fovea::cuda::baselines
