// A tile is large enough that a library packs its operands in little of the time.
#include "linear/host_plan.h"

#include <algorithm>

#include "cpu/call.h"

namespace fovea::linear {
namespace {

using cpu::align_up;
using cpu::divide_up;

// Of a tile at most. Products of few tiles are cut finer, down to kLeastRows.
constexpr std::int64_t kTileRows = 512, kTileColumns = 512, kLeastRows = 64, kEnoughTiles = 4;

// Equal tiles of at most `most`.
std::int64_t tile_of(std::int64_t size, std::int64_t most) {
  return divide_up(size, std::max<std::int64_t>(1, divide_up(size, most)));
}

std::string words_of(const WholeProduct& p, const Cut& cut) {
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) + ": " +
         std::to_string(cut.tiles) + " tiles of " + std::to_string(cut.rows) + " x " + std::to_string(cut.columns);
}

}  // namespace

Cut cut_of(std::int64_t count, std::int64_t m, std::int64_t n) {
  Cut cut{};
  cut.columns = tile_of(n, kTileColumns);
  cut.column_tiles = divide_up(n, cut.columns);
  std::int64_t most = kTileRows;
  do {
    cut.rows = tile_of(m, most);
    cut.row_tiles = divide_up(m, cut.rows);
    cut.tiles = count * cut.row_tiles * cut.column_tiles;
    most /= 2;
  } while (cut.tiles < kEnoughTiles && most >= kLeastRows);
  return cut;
}

HostPlan::HostPlan(const HostLibrary& used, const LinearProblem& p) : Plan(p), library(used) {
  std::int64_t library_bytes = 0, most_tiles = 1;
  for (const WholeProduct& one : whole_products(p)) {
    const Cut cut = cut_of(1, one.m, one.n);
    BatchedProduct tile{.m = std::min(one.m, kTileRows), .n = std::min(one.n, kTileColumns), .k = one.k};
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
