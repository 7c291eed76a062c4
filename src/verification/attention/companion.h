// A small problem of the same kind as a given one. If a problem has too few numbers to measure the plain evaluation's
// error, a few companions give it.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/attention.h"

namespace fovea::verification {

inline constexpr std::int64_t kLeastKeysOfCompanions = 4;

// What a companion keeps of its problem. Inputs that are kept are only made finite.
struct Keeps {
  // q and k: moving them changes scores of thousands so much that one key gets all the probability, and no gradient
  // flows.
  bool scores = false;
  bool len_k = false;  // however short: an lse over more keys is more accurate, since it averages their scores' errors
  // All heads, the lengths and the mask: a row that sees few keys, or outweighs all others, has few errors to average.
  // In fp32 equal elements also stay equal: equal keys have one error in common. With 16 bits, P of equal keys would be
  // one rounding, and its worst would excuse an answer that rounds P badly. The plain evaluation rounds P where answers
  // do, so there the problem itself shows their common error.
  bool shape = false;
};

// One key head of the problem and its query heads, without the mask; Keeps may say otherwise. Every input element is
// moved by up to an eighth of itself and of the typical element. Elements that share memory (a stride of 0) stay equal.
// Nothing is non-finite. There are at least four keys: the plain evaluation of a row that sees one key is exact, which
// says nothing of other rows. If backward is given lse, out or delta, the companion has its own, from the reference. In
// fp32 a companion of the problem's shape then moves lse by up to an eighth: if all scores are too small to change it,
// P of every row is 1 / keys, and exact where the number of keys is a power of two.
class Companion {
 public:
  Companion(const AttentionProblem& problem, const ForwardTensors& tensors, std::uint64_t number, Keeps keeps = {});
  Companion(const AttentionProblem& problem, const BackwardTensors& tensors, std::uint64_t number, Keeps keeps = {});
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;

  const AttentionProblem& problem() const { return problem_; }
  const ForwardTensors& forward() const { return forward_; }
  const BackwardTensors& backward() const { return backward_; }

 private:
  TensorView moved(const TensorView& view, std::int64_t heads, std::int64_t rows, double reach = 1.0);
  TensorView dense(const Sizes& sizes, DType dtype, const std::vector<double>& values);
  double eighth(std::uint64_t role, std::uint64_t position) const;

  std::uint64_t number_;
  Keeps keeps_;
  std::int64_t batch_, key_head_;  // of the original problem, the first that is copied
  AttentionProblem problem_;
  std::vector<std::vector<float>> memory_;
  ForwardTensors forward_;
  BackwardTensors backward_;
};

}  // namespace fovea::verification
