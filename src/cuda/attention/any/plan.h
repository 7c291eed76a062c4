// The choice of tiles and of a split along the streamed side, and the map of the workspace.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/attention/any/split_model.h"
#include "fovea/problem.h"

namespace fovea::cuda::any {

// Byte offsets into the workspace; -1: not needed.
struct ForwardPlan {
  Shape shape;
  const KernelInstance* kernel = nullptr;
  Split split;
  Grid grid;
  int shared_bytes = 0;     // of a block of threads
  std::int64_t blocks = 0;  // of threads
  std::int64_t partial_out = -1, partial_state = -1;
  std::int64_t workspace_bytes = 0;
};

struct GradientPlan {
  const KernelInstance* kernel = nullptr;
  Split split;
  Grid grid;
  int shared_bytes = 0;
  std::int64_t blocks = 0;
  std::int64_t partial_first = -1, partial_second = -1;
};

struct BackwardPlan {
  Shape shape;
  GradientPlan keys, queries;
  std::int64_t lse = 0, delta = 0;
  std::int64_t workspace_bytes = 0;
};

ElementKind kind_of(DType type);

// Why these kernels do not take the problem; empty if they do.
std::string refusal(const AttentionProblem& problem);

// With `forced` in the place of the choice.
ForwardPlan plan_forward(const AttentionProblem& problem, const Forced& forced);
BackwardPlan plan_backward(const AttentionProblem& problem, const Forced& keys, const Forced& queries);

// The library's choice. Every thread remembers its last few; a reference is good until the thread asks again.
const ForwardPlan& plan_forward(const AttentionProblem& problem);
const BackwardPlan& plan_backward(const AttentionProblem& problem);

// One line each, for `explain`.
std::string describe(const ForwardPlan& plan);
std::string describe(const BackwardPlan& plan);

}  // namespace fovea::cuda::any
