// How the engine's own product is split: K into blocks, the result into parts and their tiles, b into pieces that tasks
// pack. Found by the plan.
#pragma once

#include <array>
#include <cstdint>

#include "cpu/kernels/kernels.h"
#include "linear/plan.h"

namespace fovea::linear {

// The rows of a of one tile, kTileColumns columns of b and the next kTileColumns share the L2 cache.
inline constexpr std::int64_t kTileColumns = 192;

// K is split into blocks of `depth`, the last of which may be shorter.
struct Blocks {
  Blocks(const cpu::Kernels& kernels, std::int64_t k);
  std::int64_t depth, count;
  std::int64_t row_bytes;  // of a packed row of a or column of b
};

// Tiles of the result: rows by a range of columns, which is all of them unless there are few rows. The last eighth of
// the rows is in smaller tiles, so that all threads end at about the same time.
struct Tiles {
  Tiles(const cpu::Kernels& kernels, std::int64_t m, std::int64_t n);
  std::int64_t first_row(std::int64_t row_tile) const {
    return row_tile < large ? row_tile * rows : large * rows + (row_tile - large) * last_rows;
  }
  std::int64_t rows, last_rows, columns;
  std::int64_t large;        // tiles of `rows`; the others have `last_rows`
  std::int64_t down, count;  // tiles of a range of columns, of all
};

// The piece of b that one task packs. `along_depth`: k is contiguous in memory, and a task packs whole panels.
// Otherwise the columns are contiguous, and a task packs a few rows of many panels.
struct Pieces {
  Pieces(const cpu::Kernels& kernels, bool along_depth, std::int64_t n, std::int64_t block_depth);
  bool along_depth;
  std::int64_t depth, columns;
  std::int64_t across, count;
};

// A part of the result, which is packed and summed at once.
struct PackedPart {
  PackedPart(const cpu::Kernels& kernels, const Blocks& blocks, std::int64_t m, std::int64_t n);
  Tiles tiles;
  std::array<Pieces, 2> pieces;  // of b as the product takes it, and transposed in memory
  std::int64_t block_bytes;      // the panels of a block of b
};

struct PackedLayout {
  explicit PackedLayout(const WholeProduct& product);

  // The part that begins at this row and column of the result.
  const PackedPart& part(std::int64_t row, std::int64_t column) const {
    return parts[row + rows > product.m ? 1 : 0][column + columns > product.n ? 1 : 0];
  }

  WholeProduct product;
  const cpu::Kernels& kernels;
  Blocks blocks;
  std::int64_t rows, columns;                      // of all parts but the last
  std::array<std::array<PackedPart, 2>, 2> parts;  // [the last rows][the last columns]
};

}  // namespace fovea::linear
