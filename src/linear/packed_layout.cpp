// Blocks, tiles and pieces depend on the shape alone, so no sum depends on the number of threads.
#include "linear/packed_layout.h"

#include <algorithm>

#include "cpu/call.h"
#include "linear/host_kernels.h"

namespace fovea::linear {
namespace {

using cpu::divide_up, cpu::round_up;

constexpr std::int64_t kMostColumns = 4096;                                       // of a part with an fp32 result
constexpr std::int64_t kSumsRows = 2048, kSumsColumns = 2048;                     // of a part with another result
constexpr std::int64_t kPieceElements = std::int64_t{1} << 15, kPieceDepth = 32;  // of b, that a task packs
constexpr std::int64_t kMostRows = 144, kLeastRows = 48, kLeastLastRows = 24, kEnoughRowTiles = 8, kEnoughTiles = 12;

// The last part of a dimension in parts of `most`; `most` itself if it is a whole number of them.
std::int64_t rest_of(std::int64_t size, std::int64_t most) { return size % most == 0 ? most : size % most; }

}  // namespace

Blocks::Blocks(const cpu::Kernels& kernels, std::int64_t k)
    : depth(round_up(divide_up(k, divide_up(k, kernels.product_depth)), 4 * kernels.product_pairs)),
      count(divide_up(k, depth)),
      row_bytes(depth / kernels.product_pairs * 4) {}

Tiles::Tiles(const cpu::Kernels& kernels, std::int64_t m, std::int64_t n) {
  const std::int64_t step = kernels.product_rows;
  rows = round_up(std::clamp(divide_up(m, kEnoughRowTiles), kLeastRows, kMostRows), step);
  last_rows = round_up(std::max(kLeastLastRows, rows / 4), step);
  large = m * 7 / 8 / rows;
  down = large + divide_up(m - large * rows, last_rows);
  columns = round_up(divide_up(n, divide_up(kEnoughTiles, down)), kTileColumns);
  count = down * divide_up(n, columns);
}

Pieces::Pieces(const cpu::Kernels& kernels, bool along, std::int64_t n, std::int64_t block_depth)
    : along_depth(along), depth(along_depth ? block_depth : kPieceDepth) {
  const std::int64_t panel = kernels.product_columns;
  columns = std::max(panel, kPieceElements / depth / panel * panel);
  across = divide_up(n, columns);
  count = across * divide_up(block_depth, depth);
}

PackedPart::PackedPart(const cpu::Kernels& kernels, const Blocks& blocks, std::int64_t m, std::int64_t n)
    : tiles(kernels, m, n),
      pieces{Pieces(kernels, false, n, blocks.depth), Pieces(kernels, true, n, blocks.depth)},
      block_bytes(round_up(n, kernels.product_columns) * blocks.row_bytes) {}

PackedLayout::PackedLayout(const WholeProduct& p)
    : product(p),
      kernels(host_kernels(p.operands)),
      blocks(kernels, p.k),
      rows(p.result == DType::fp32 ? p.m : std::min(p.m, kSumsRows)),
      columns(std::min(p.n, p.result == DType::fp32 ? kMostColumns : kSumsColumns)),
      parts{{{PackedPart(kernels, blocks, rows, columns), PackedPart(kernels, blocks, rows, rest_of(p.n, columns))},
             {PackedPart(kernels, blocks, rest_of(p.m, rows), columns),
              PackedPart(kernels, blocks, rest_of(p.m, rows), rest_of(p.n, columns))}}} {}

}  // namespace fovea::linear
