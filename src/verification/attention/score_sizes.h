// Bounds on scores, which tell the rows whose gradients fp32 scores and an fp32 lse still determine.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/attention.h"
#include "verification/attention/evaluation.h"

namespace fovea::verification {

// From here on half an ulp of an fp32 score or lse is 1, so P = exp(score - lse) in backward has no correct digit.
inline constexpr double kLastKnownScore = 0x1p24;

// Bounds the scores of the query rows of one head, and all partial sums of them: |scale| |q| |k| with Euclidean norms
// and the largest visible key. The bound is not finite if q or k is not.
class ScoreSizes {
 public:
  ScoreSizes(const AttentionProblem& problem, const TensorView& q, const TensorView& k, std::int64_t batch,
             std::int64_t head);
  // Whether a row's bound is finite and at least `limit`. Looks at the mask only if the largest of all keys reaches it.
  bool reaches(std::int64_t row, double limit) const;

 private:
  AttentionProblem problem_;
  std::vector<double> queries_, keys_;  // norms; the queries' are multiplied by |scale|
  double largest_key_ = 0;
};

// The sample without query rows whose P fp32 does not determine, and without the keys that such rows see.
Sample known_to_backward(const AttentionProblem& problem, const BackwardTensors& tensors, Sample sample);

}  // namespace fovea::verification
