// The score stage between scaling and softmax, a template parameter of forward and backward (a score_mod). A softcap,
// ALiBi slopes, a bias or a user's function would be another struct like PlainScore.
#pragma once

#include "cpu/kernels/tile.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// Position of one vector of scores, whose first lane is query row `row`, numbered as in InputRows, and key `key` of the
// sequence. Its lanes are consecutive rows of this key, or consecutive keys of this row.
struct ScorePosition {
  int64_t row, key;
  bool along_keys;
};

// Before and after the stage, scores are q.k times the scale's sign; multiplying by shape.scale_hi scales them.
struct PlainScore {
  FOVEA_INLINE static Vec apply(const Shape&, Vec score, ScorePosition) { return score; }

  // `probability` times the derivative of `apply` at `score`, for dS.
  FOVEA_INLINE static Vec differentiate(const Shape&, Vec score, Vec probability, ScorePosition) {
    (void)score;
    return probability;
  }
};

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
