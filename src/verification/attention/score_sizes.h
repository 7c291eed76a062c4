// How large scores may be, and so which rows fp32 scores and an fp32 log-sum-exp leave known.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/attention.h"
#include "verification/attention/evaluation.h"

namespace fovea::verification {

// From here on half a unit in the last place of an fp32 score or log-sum-exp is 1: what backward makes of their
// difference, exp(score - lse), is known to no digit.
inline constexpr double kLastKnownScore = 0x1p24;

// Of a query row of one head: |scale| |q| |k|, Euclidean norms, with the largest key that the row sees. Its scores, and
// every sum on the way to them, stay below. Not finite where q or k is not.
class ScoreSizes {
 public:
  ScoreSizes(const AttentionProblem& problem, const TensorView& q, const TensorView& k, std::int64_t batch,
             std::int64_t head);
  // Whether a row's is finite and at least `limit`. Asks the mask only where the largest of all keys would reach it.
  bool reaches(std::int64_t row, double limit) const;

 private:
  AttentionProblem problem_;
  std::vector<double> queries_, keys_;  // norms, times |scale| those of queries
  double largest_key_ = 0;
};

// The sample without the rows of backward of which fp32 knows nothing, and without the keys that such a row sees.
Sample known_to_backward(const AttentionProblem& problem, const BackwardTensors& tensors, Sample sample);

}  // namespace fovea::verification
