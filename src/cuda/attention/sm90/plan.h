// The plan of a call: kernel instance, order of tiles, and the map of the workspace.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>

#include "attention/plan.h"
#include "cuda/attention/sm90/backward_parameters.h"
#include "cuda/attention/sm90/estimate.h"
#include "cuda/attention/sm90/parameters.h"
#include "cuda/attention/sm90/two_pass_parameters.h"

namespace fovea::cuda::sm90 {

struct ForwardPlan final : attention::Plan {
  using attention::Plan::Plan;

  Shape shape;
  const ForwardInstance* kernel = nullptr;
  RowPacking packing;
  any::Split split;
  TileOrder order;           // its counter is the start of the workspace
  bool has_counter = false;  // tiles differ, and thread blocks take several; it must be 0 at the launch
  std::int64_t ctas = 0;
  std::int64_t partial_out = 0, partial_state = 0;  // byte offsets into the workspace, if splits combine in memory

  bool combines_in_memory() const { return split.splits > 1 && !split.in_cluster; }
};

struct BackwardPlan final : attention::Plan {
  using attention::Plan::Plan;

  Shape shape;
  const BackwardInstance* kernel = nullptr;
  KeyTileOrder order;
  bool accumulate = false;
  std::int64_t ctas = 0, preprocess_ctas = 0;
  // Byte offsets into the workspace; partials only of wanted gradients that several splits compute.
  std::int64_t lse = 0, delta = 0, turns = 0, dq_sum = 0, partial_dk = 0, partial_dv = 0;
};

// Backward of wide heads.
struct TwoPassPlan final : attention::Plan {
  using attention::Plan::Plan;

  Shape shape;
  const TwoPassInstance* kernels = nullptr;
  TilesOfSequences dkdv, dq;
  bool accumulate = false;
  int query_tiles = 1;  // tiles of kTwoPassRows queries
  std::int64_t preprocess_ctas = 0;
  std::int64_t lse = 0, delta = 0;  // byte offsets into the workspace
};

// A kernel instance that takes a problem, how it divides it, and its predicted time.
struct ForwardChoice {
  const ForwardInstance* kernel = nullptr;
  Division division;
  double seconds = HUGE_VAL;
};

// The plan of a choice, also of one that the library would not make, for a GPU with `sms` SMs. Requires that
// code_refusal() is empty. For clusters, resident_clusters() must have been asked with their size: it allows more than
// 8 thread blocks.
std::shared_ptr<ForwardPlan> plan_forward(const AttentionProblem& problem, const ForwardChoice& choice, int sms);

// The library's choice, or why these kernels do not take the problem. There is one variant.
core::Prepared prepare(const AttentionProblem& problem, int variant);
core::Prepared prepare_backward(const AttentionProblem& problem);
core::Prepared prepare_two_pass(const AttentionProblem& problem);

// Tiles of a grid. Half of the range of int, since packed heads can nearly double the count.
constexpr std::int64_t kMaxNumbers = (std::int64_t{1} << 30) - 1;

// Why no kernel with head dimensions up to `max_dim` takes the problem; empty if one may.
std::string refusal(const AttentionProblem& problem, std::int64_t max_dim);
// Why the driver cannot run a kernel of this build; empty if it can.
std::string code_refusal(const void* function, const AttentionProblem& problem);

}  // namespace fovea::cuda::sm90
