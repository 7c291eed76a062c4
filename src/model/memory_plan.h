// Where everything of a training step lies in one block of a device's memory, known before any of it is allocated.
#pragma once

#include <cstdint>
#include <vector>

#include "model/calls.h"
#include "model/parameters.h"

namespace fovea::model {

// Offsets in bytes; R rows (batch, position), E width, F hidden, V vocabulary. Arrays marked * have the model's type,
// the others are fp32 unless said otherwise. Checkpointed blocks share all arrays but the x of their first norms.
struct NormMemory {
  std::int64_t x = 0;        // [R, E], the residual stream that it reads
  std::int64_t inverse = 0;  // [R] on the CPU; GPUs compute it again
  std::int64_t y = 0;        // [R, E] *
};

struct BlockMemory {
  std::int64_t attention_saved = 0;
  std::int64_t gate_up = 0;  // [R, 2 F] *, then its gradient
};

struct MemoryPlan {
  // On the device of the calls.
  MemoryPlan(const Config& config, const Extent& extent, const ParameterMap& map, const Calls& calls);

  std::int64_t weights = 0, gradients = 0, first_moment = 0, second_moment = 0;
  std::int64_t rounded = 0;       // the weights in bf16; in an fp32 model there is none
  std::vector<NormMemory> norms;  // two for each block, and the last one
  std::vector<BlockMemory> blocks;
  std::int64_t logits = 0;  // [R, V], then their gradient, in bf16 in the first half of each row
  // [R, F] *, of one block: in backward first its gradient, which SwiGLU replaces. It lies where the logits are, before
  // there are logits and after their gradient.
  std::int64_t hidden = 0;
  std::int64_t losses = 0;    // [R] RowLoss
  std::int64_t tokens = 0;    // [2 R] int32, the targets behind the tokens
  std::int64_t dstream = 0;   // [R, E], gradient of the residual stream
  std::int64_t dbranch = 0;   // [R, E] *, the same; in an fp32 model the same array
  std::int64_t dy = 0;        // [R, E] *, gradient of a norm's result
  std::int64_t branch = 0;    // [R, E] *, what attention or the feed-forward part adds to the stream; the memory of dy
  std::int64_t partials = 0;  // of the gradients of a norm's weight
  std::int64_t square_sums = 0, clipping = 0;
  std::int64_t workspace = 0;

  std::int64_t workspace_bytes = 0;
  std::int64_t state_bytes = 0;       // weights, gradients, moments, rounded weights
  std::int64_t activation_bytes = 0;  // what forward keeps for backward
  // The most that each phase of a step needs at once, the state included.
  std::int64_t forward_bytes = 0, backward_bytes = 0, optimizer_bytes = 0;
  std::int64_t total_bytes = 0;

 private:
  class Offsets;
  void add_activations(const Config& config, const Extent& extent, const Calls& calls, Offsets& next);
};

}  // namespace fovea::model
