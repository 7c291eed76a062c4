// Linear's plans on the CPU: tiles depend on the shape alone, so that the bits do not depend on the number of threads.
#pragma once

#include <vector>

#include "linear/host_library.h"
#include "linear/packed_product.h"
#include "linear/plan.h"

namespace fovea::linear {

// How a library's product is tiled, the same for all products of a batch.
struct Tiling {
  std::int64_t rows, row_tiles;        // of a tile, and how many
  std::int64_t columns, column_tiles;  // likewise
  std::int64_t tiles;                  // of all products
};
Tiling tiling_of(const BatchedProduct& product, const TileSize& largest);  // depends on its sizes alone

struct HostPlan final : Plan {
  HostPlan(const HostLibrary& library, const LinearProblem& problem);

  bool is_own() const { return library.multiply == nullptr; }

  // What was found for a product of these sizes; null if the plan has none. Where strides do not fold, products are
  // repeated with smaller sizes, whose tiles the run finds.
  const PackedLayout* layout_of(const BatchedProduct& product) const;
  const Tiling* tiling_of(const BatchedProduct& product) const;

  const HostLibrary& library;
  std::vector<WholeProduct> products;
  std::vector<PackedLayout> layouts;  // of the products, on the engine's own kernels
  PackedRoom room;                    // of all of them; the members below are for libraries
  std::vector<Tiling> tilings;
  TileSize largest_tile{};
  int workers = 1;                 // that the workspace has room for
  std::int64_t sums_bytes = 0;     // of a worker: a tile that is rounded afterwards
  std::int64_t scratch_bytes = 0;  // of a worker: that tile, then the library's memory

 private:
  void plan_own();
  void plan_library();
};

// `library`: its number in host_libraries().
core::Prepared prepare_on_host(const LinearProblem& problem, int library);

}  // namespace fovea::linear
