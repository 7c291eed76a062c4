// The score stage between scaling and softmax, a template parameter of forward and backward (a score_mod). A softcap,
// ALiBi slopes, a bias or a user's function would be another struct like PlainScore.
#pragma once

#include "cpu/kernels/tile.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// Position of one vector of scores. Lane n is query row `row` + n / keys, numbered as in InputRows, and key `key` +
// n % keys of the sequence.
struct ScorePosition {
  int64_t row, key;
  int keys;
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
