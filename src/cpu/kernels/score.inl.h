// The stage between scaling and the maximum, a part of every kernel's configuration. A softcap, slopes, a bias or a
// function of the user's is another struct like the one here, and with it another instance of forward and backward.
#pragma once

#include "cpu/kernels/tile.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// Where the scores of one vector are: its lanes are the query rows from `row` on, as InputRows counts them; `key` is
// counted from the sequence's first.
struct Place {
  int64_t row, key;
};

// Scores are q.k times the sign of the scale, before the stage and after it; times shape.size they are the scaled ones.
struct PlainScore {
  FOVEA_INLINE static Vec apply(const Shape&, Vec score, Place) { return score; }

  // The weight times the derivative of `apply`, for dS; `score` is what `apply` got.
  FOVEA_INLINE static Vec differentiate(const Shape&, Vec score, Vec weight, Place) {
    (void)score;
    return weight;
  }
};

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
