// Where a layer's activations and their gradients lie in the saved state and in the workspace.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fovea/layers.h"
#include "layers/norms.h"
#include "layers/projections.h"

namespace fovea::layers {

struct Area {
  std::int64_t offset = 0, bytes = 0;
  bool is_saved = false;  // in the saved state, else in the workspace
};

// Every activation is a dense matrix of the problem's type with rows (batch, len).
struct MemoryMap {
  // `state_bytes`: of attention's own saved state. `parts_bytes`: the largest workspace of a part.
  MemoryMap(const LayerProblem& problem, std::int64_t state_bytes, std::int64_t parts_bytes);

  std::array<Area, kSlots> results{};      // of the projections before attention
  std::array<Area, kNorms> row_results{};  // of row passes that do not write over what they read
  Area attention, lse, state;              // lse is fp32 [batch, heads_q, len_q]; only backward needs it
  // Backward: the gradients of the results of all projections that read a source, side by side; and the gradient of
  // attention's result.
  std::array<Area, kSources> gradients{};
  Area attention_gradient;
  Area whole_key_gradient;                      // of k with its shared columns
  Area partial;                                 // sums of a norm's gradient
  std::array<Area, kSources> packed_weights{};  // of all projections that read a source, where these are packed
  Area parts;
  std::vector<LayerExplanation::SavedTensor> saved;
  std::int64_t saved_bytes = 0, workspace_bytes = 0;

 private:
  void keep_results(const LayerProblem& problem, const Steps& steps, bool saves);
  Area take(std::int64_t bytes, bool in_saved);
  Area keep(std::string name, DType dtype, const Sizes& sizes, bool in_saved);
  void add_gradients(const LayerProblem& problem, const Steps& steps);
};

}  // namespace fovea::layers
