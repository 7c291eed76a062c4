// Linear's plans on the CPU: products are cut by shape alone, so that the bits do not depend on the number of threads.
#pragma once

#include "linear/host_library.h"
#include "linear/packed_product.h"
#include "linear/plan.h"

namespace fovea::linear {

// The tiles of a product's results, all products of a batch alike.
struct Cut {
  std::int64_t rows, row_tiles;        // of a tile, and how many
  std::int64_t columns, column_tiles;  // likewise
  std::int64_t tiles;                  // of all products
};
Cut cut_of(const BatchedProduct& product, const TileSize& largest);  // of its sizes alone

struct HostPlan final : Plan {
  HostPlan(const HostLibrary& library, const LinearProblem& problem);

  bool is_own() const { return library.multiply == nullptr; }

  const HostLibrary& library;
  PackedRoom room;  // of the engine's own product; the rest is a library's
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
