// A layer's parts as problems of attention and Linear, in the order in which they run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fovea/layers.h"
#include "layers/projections.h"

namespace fovea::layers {

// Attention between the projections; backward computes only gradients that are needed.
AttentionProblem attention_of(const LayerProblem& problem);
bool needs_attention(const LayerProblem& problem);  // forward always does

// One call of Linear. In backward, the gradients of the results of all projections that read one source lie side by
// side in one matrix, and dy is some of its columns (or the caller's dy, for out).
struct Product {
  Source source;
  std::optional<Slot> slot;       // none: dx of all projections that read the source, with their weights packed
  std::int64_t first_column = 0;  // of dy
  LinearProblem problem = {};
  std::string name() const;
};

// Forward: attention runs before the last one, out. Backward: attention runs after the first one, out's dx.
std::vector<Product> products_of(const LayerProblem& problem);

// Forward's product of one projection.
LinearProblem forward_of(const LayerProblem& problem, const Step& step);

// Columns of the gradients of the results of all projections that read the source.
std::int64_t columns_read_from(const Steps& steps, Source source);

// Whether dx of several projections is one product with their weights packed, rather than a sum of products. A sum in
// 16 bits rounds once more for each product. On a GPU bf16 takes it nevertheless where it reads and writes less:
// packing reads and writes the weights; every further product reads and writes dx, and takes as long as this many bytes
// more.
inline constexpr double kBytesOfAProduct = 8 << 20;
bool packs_weights(const LayerProblem& problem, const Steps& steps, Source source);

}  // namespace fovea::layers
