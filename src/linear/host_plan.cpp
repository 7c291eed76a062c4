// Where the tiles of products lie, and the workspace of those who compute them.
#include "linear/host_plan.h"

#include <algorithm>

#include "cpu/call.h"

namespace fovea::linear {
namespace {

using cpu::align_up;
using cpu::divide_up;

// A large product becomes kEnoughTiles, or as many as have kLargeTile multiply-adds: repacking operands then takes
// little of the time. A small product becomes kFewTiles.
constexpr std::int64_t kLargeTile = std::int64_t{1} << 29, kEnoughTiles = 6, kFewTiles = 4;
constexpr std::int64_t kLeastRowsOfLarge = 192, kLeastRows = 64, kLeastColumns = 384;

std::string words_of(const WholeProduct& p, const Cut& cut) {
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) + ": " +
         std::to_string(cut.tiles) + " tiles of " + std::to_string(cut.rows) + " x " + std::to_string(cut.columns);
}

}  // namespace

Cut cut_of(const BatchedProduct& p, const TileSize& largest) {
  const std::int64_t large_tiles = p.count * p.m * p.n * p.k / kLargeTile;
  const bool is_large = large_tiles >= 2;
  const std::int64_t wanted = is_large ? std::min(large_tiles, kEnoughTiles) : kFewTiles;
  const std::int64_t least_rows = is_large ? kLeastRowsOfLarge : kLeastRows;
  std::int64_t row_tiles = divide_up(p.m, largest.rows), column_tiles = divide_up(p.n, largest.columns);
  for (;;) {
    Cut cut{};
    cut.rows = divide_up(p.m, row_tiles);
    cut.row_tiles = divide_up(p.m, cut.rows);
    cut.columns = divide_up(p.n, column_tiles);
    cut.column_tiles = divide_up(p.n, cut.columns);
    cut.tiles = p.count * cut.row_tiles * cut.column_tiles;
    const bool may_cut_rows = cut.rows / 2 >= least_rows;
    const bool may_cut_columns = !largest.whole_rows && cut.columns / 2 >= kLeastColumns;
    if (cut.tiles >= wanted || (!may_cut_rows && !may_cut_columns)) return cut;
    // The longer side is halved: square tiles repeat the least packing, and an even number is balanced over two
    // threads.
    const bool cuts_columns = may_cut_columns && (cut.columns >= cut.rows || !may_cut_rows);
    (cuts_columns ? column_tiles : row_tiles) *= 2;
  }
}

HostPlan::HostPlan(const HostLibrary& used, const LinearProblem& p) : Plan(p), library(used) {
  is_own() ? plan_own() : plan_library();
}

void HostPlan::plan_own() {
  for (const WholeProduct& one : whole_products(problem)) {
    room.grow_to(packed_room(one));
    tiles += (tiles.empty() ? "" : "; ") + packed_words(one);
  }
  workspace_bytes = copied_bytes + room.bytes();
}

void HostPlan::plan_library() {
  largest_tile = library.largest_tile(problem.dtype);
  std::int64_t library_bytes = 0, most_tiles = 1;
  for (const WholeProduct& one : whole_products(problem)) {
    const Cut cut = cut_of({.m = one.m, .n = one.n, .k = one.k}, largest_tile);
    BatchedProduct tile{
        .m = std::min(one.m, largest_tile.rows), .n = std::min(one.n, largest_tile.columns), .k = one.k};
    tile.a.dtype = tile.b.dtype = one.operands;
    tile.c.dtype = one.result;
    if (one.result != DType::fp32) sums_bytes = std::max(sums_bytes, align_up(tile.m * tile.n * 4));
    library_bytes = std::max(library_bytes, align_up(library.scratch_bytes(tile)));
    most_tiles = std::max(most_tiles, cut.tiles);
    tiles += (tiles.empty() ? "" : "; ") + words_of(one, cut);
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
