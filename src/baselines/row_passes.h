// Passes over one row of scores, for the work between the two matrix products. Keys [begin, end) of `count` are
// visible. A hidden key has score -inf and probability 0.
#pragma once

#include <cstdint>

namespace fovea::baselines {

// The log-sum-exp of factor * scores, in two parts, because one float would lose small digits besides a large score.
struct LogSumExp {
  float origin;   // the score with the largest factor * score
  float log_sum;  // log of the sum of exp(factor * (score - origin)); -infinity if there is no score
  float value(float factor) const { return origin * factor + log_sum; }
};

struct RowPasses {
  // row *= factor
  void (*scale)(float* row, std::int64_t count, float factor);
  // Hidden scores become -inf.
  void (*hide)(float* row, std::int64_t count, std::int64_t begin, std::int64_t end);
  // Scores become probabilities: maximum, exponentials with their sum, division. Returns the log-sum-exp.
  float (*softmax)(float* row, std::int64_t count);
  // The log-sum-exp of `factor` times the visible scores. Does not change the row.
  LogSumExp (*log_sum_exp)(const float* row, std::int64_t begin, std::int64_t end, float factor);
  // Scores become probabilities exp(factor * (row - origin) - log_sum); hidden ones become 0.
  void (*exponentials)(float* row, std::int64_t count, std::int64_t begin, std::int64_t end, float factor,
                       LogSumExp lse);
  // scale, hide and softmax at once. Returns the log-sum-exp.
  float (*masked_softmax)(float* row, std::int64_t count, std::int64_t begin, std::int64_t end, float factor);
  // Turns dP into dS: row = probabilities * (row - delta) * factor.
  void (*softmax_gradient)(float* row, const float* probabilities, std::int64_t count, float delta, float factor);
  // rowsum(P row) / rowsum(P), which is delta for row = dP; 0 if P is 0.
  float (*weighted_mean)(const float* row, const float* probabilities, std::int64_t count);
  float (*dot)(const float* a, const float* b, std::int64_t count);
  void (*widen_bf16)(float* to, const std::uint16_t* from, std::int64_t count);
  void (*widen_fp16)(float* to, const std::uint16_t* from, std::int64_t count);
  void (*narrow_bf16)(std::uint16_t* to, const float* from, std::int64_t count);
  void (*narrow_fp16)(std::uint16_t* to, const float* from, std::int64_t count);
};

// The passes compiled for the widest vectors that this processor has.
const RowPasses& row_passes();

}  // namespace fovea::baselines
