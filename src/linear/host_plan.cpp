// Tiling of library products, and the workspace of the threads that compute the tiles.
#include "linear/host_plan.h"

#include <algorithm>

#include "cpu/call.h"

namespace fovea::linear {
namespace {

using cpu::align_up;
using cpu::divide_up;

// A large product becomes kEnoughLargeTiles, or as many as have kLargeTile multiply-adds: repacking operands then takes
// little of the time. A small product becomes kFewTiles. A product of few rows becomes two tiles, for two threads.
constexpr std::int64_t kLargeTile = std::int64_t{1} << 29, kEnoughLargeTiles = 6, kFewTiles = 4;
constexpr std::int64_t kLeastRowsOfLarge = 192, kLeastRowsOfSmall = 64, kLeastRowsOfHalf = 16;
constexpr std::int64_t kLeastColumns = 384;

std::string words_of(const WholeProduct& p, const Tiling& tiling) {
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) + ": " +
         std::to_string(tiling.tiles) + (tiling.tiles == 1 ? " tile of " : " tiles of ") + std::to_string(tiling.rows) +
         " x " + std::to_string(tiling.columns);
}

bool is_of(const WholeProduct& whole, const BatchedProduct& p) {
  return whole.m == p.m && whole.n == p.n && whole.k == p.k && whole.result == p.c.dtype;
}

}  // namespace

Tiling tiling_of(const BatchedProduct& p, const TileSize& largest) {
  const std::int64_t large_tiles = p.count * p.m * p.n * p.k / kLargeTile;
  const bool is_large = large_tiles >= 2;
  const std::int64_t wanted = is_large ? std::min(large_tiles, kEnoughLargeTiles) : kFewTiles;
  const std::int64_t least_rows = is_large ? kLeastRowsOfLarge : kLeastRowsOfSmall;
  std::int64_t row_tiles = divide_up(p.m, largest.rows), column_tiles = divide_up(p.n, largest.columns);
  for (;;) {
    Tiling tiling{};
    tiling.rows = divide_up(p.m, row_tiles);
    tiling.row_tiles = divide_up(p.m, tiling.rows);
    tiling.columns = divide_up(p.n, column_tiles);
    tiling.column_tiles = divide_up(p.n, tiling.columns);
    tiling.tiles = p.count * tiling.row_tiles * tiling.column_tiles;
    const bool may_halve_rows = tiling.rows / 2 >= (tiling.tiles > 1 ? least_rows : kLeastRowsOfHalf);
    const bool may_halve_columns = !largest.whole_rows && tiling.columns / 2 >= kLeastColumns;
    if (tiling.tiles >= wanted || (!may_halve_rows && !may_halve_columns)) return tiling;
    // The longer side is halved: square tiles repeat the least packing, and an even number is balanced over two
    // threads.
    const bool halves_columns = may_halve_columns && (tiling.columns >= tiling.rows || !may_halve_rows);
    (halves_columns ? column_tiles : row_tiles) *= 2;
  }
}

HostPlan::HostPlan(const HostLibrary& used, const LinearProblem& p)
    : Plan(p), library(used), products(whole_products(p)) {
  is_own() ? plan_own() : plan_library();
}

void HostPlan::plan_own() {
  for (const WholeProduct& one : products) {
    const PackedLayout& layout = layouts.emplace_back(one);
    room.grow_to(packed_room(layout));
    tiles += (tiles.empty() ? "" : "; ") + packed_words(layout);
  }
  workspace_bytes = copied_bytes + room.bytes();
}

const PackedLayout* HostPlan::layout_of(const BatchedProduct& p) const {
  for (const PackedLayout& one : layouts)
    if (is_of(one.product, p)) return &one;
  return nullptr;
}

const Tiling* HostPlan::tiling_of(const BatchedProduct& p) const {
  for (std::size_t n = 0; n < tilings.size(); ++n)
    if (p.count == 1 && is_of(products[n], p)) return &tilings[n];
  return nullptr;
}

void HostPlan::plan_library() {
  largest_tile = library.largest_tile(problem.dtype);
  std::int64_t library_bytes = 0, most_tiles = 1;
  for (const WholeProduct& one : products) {
    const Tiling& tiling = tilings.emplace_back(linear::tiling_of({.m = one.m, .n = one.n, .k = one.k}, largest_tile));
    BatchedProduct tile{
        .m = std::min(one.m, largest_tile.rows), .n = std::min(one.n, largest_tile.columns), .k = one.k};
    tile.a.dtype = tile.b.dtype = one.operands;
    tile.c.dtype = one.result;
    if (one.result != DType::fp32) sums_bytes = std::max(sums_bytes, align_up(tile.m * tile.n * 4));
    library_bytes = std::max(library_bytes, align_up(library.scratch_bytes(tile)));
    most_tiles = std::max(most_tiles, tiling.tiles);
    tiles += (tiles.empty() ? "" : "; ") + words_of(one, tiling);
  }
  if (!tiles.empty()) tiles += ", each one call of " + std::string(library.title);
  workers = cpu::most_workers(most_tiles);
  scratch_bytes = sums_bytes + library_bytes;
  workspace_bytes = copied_bytes + workers * scratch_bytes;
}

core::Prepared prepare_on_host(const LinearProblem& problem, int number) {
  const HostLibrary& library = host_libraries()[static_cast<std::size_t>(number)];
  if (std::string reason = library.refusal(problem.dtype); !reason.empty()) return {.refusal = std::move(reason)};
  return {.plan = std::make_shared<HostPlan>(library, problem)};
}

}  // namespace fovea::linear
