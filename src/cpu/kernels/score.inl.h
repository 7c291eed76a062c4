// The score stage, between scaling and softmax: a template parameter of forward and backward. A softcap, ALiBi slopes,
// a bias or a user's function would be another struct like PlainScore.
#pragma once

#include "cpu/kernels/tile.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// Position of one vector of scores: its lanes are the query rows from `row` on, counted as in InputRows; `key` is
// counted from the sequence's first key.
struct ScorePosition {
  int64_t row, key;
};

// Scores are q.k times the sign of the scale, before and after the stage; times shape.scale_hi they are scaled.
struct PlainScore {
  FOVEA_INLINE static Vec apply(const Shape&, Vec score, ScorePosition) { return score; }

  // The probability times the derivative of `apply` at `score`, for dS.
  FOVEA_INLINE static Vec differentiate(const Shape&, Vec score, Vec probability, ScorePosition) {
    (void)score;
    return probability;
  }
};

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
