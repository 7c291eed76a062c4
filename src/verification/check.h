// Is an answer right? Compared with the double-precision reference, against the error of a plain evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/problem_line.h"
#include "fovea/attention.h"

namespace fovea::verification {

struct TensorError {
  std::string tensor;  // out lse dq dk dv
  bool ok = false;
  double rel_l2 = 0;          // |got - reference| / |reference|, Euclidean over all compared elements
  double max_abs = 0;         // largest |got - reference|
  double ratio_to_plain = 0;  // rel_l2 over that of the plain same-precision evaluation (floor included)
  std::string detail;         // the first thing wrong, with its index; empty if ok
};

struct Verdict {
  bool ok = false;
  std::vector<TensorError> tensors;
  bool sampled = false;        // rows and keys were sampled, the problem being above 2 GFLOP
  std::string reason() const;  // details of the tensors that are wrong
};

// Both read inputs and outputs through host views. Problems above 2 GFLOP are checked on 256 random rows and keys and
// the tile edges, drawn from `seed`. Gradients that were not asked for (null views) are not checked.
Verdict check_forward(const AttentionProblem& problem, const ForwardTensors& tensors, std::uint64_t seed);
Verdict check_backward(const AttentionProblem& problem, const BackwardTensors& tensors, std::uint64_t seed);

}  // namespace fovea::verification
