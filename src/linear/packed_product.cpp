// Some blocks of the contracted dimension are packed, then all tiles of the result add their products; then the next
// blocks. Everything is cut by shape, so no sum depends on the number of threads.
#include "linear/packed_product.h"

#include <algorithm>

#include "cpu/call.h"
#include "cpu/tasks.h"
#include "linear/host_kernels.h"

namespace fovea::linear {
namespace {

using cpu::divide_up;

// What is packed at once stays in the caches until it is read, unless a single block is larger.
constexpr std::int64_t kPackedBytes = std::int64_t{1} << 22;
constexpr std::int64_t kSumsRows = 2048, kSumsColumns = 2048;  // of a result that is not fp32, at once
// A tile's panels of b and of a stay in the L2 cache. Smaller ones where there would be few.
constexpr std::int64_t kTileRows = 192, kTileColumns = 384, kFewTiles = 32, kLeastRows = 48, kLeastColumns = 64;
constexpr std::int64_t kPieceElements = std::int64_t{1} << 15, kPieceDepth = 32;  // that a task packs

std::int64_t round_up(std::int64_t value, std::int64_t step) { return divide_up(value, step) * step; }

const cpu::Kernels& kernels_of(DType a, DType b) { return host_kernels(a == b ? a : DType::fp32); }

// Blocks of the contracted dimension, all of `depth` but the last, and the bytes of their panels.
struct Blocks {
  Blocks(const cpu::Kernels& kernels, std::int64_t m, std::int64_t n, std::int64_t k) {
    depth = round_up(divide_up(k, divide_up(k, kernels.product_depth)), 4 * kernels.product_pairs);
    count = divide_up(k, depth);
    const std::int64_t bytes_of_one = depth / kernels.product_pairs * 4;
    bytes_of_a = round_up(m, kernels.product_rows) * bytes_of_one;
    bytes = bytes_of_a + round_up(n, kernels.product_columns) * bytes_of_one;
  }
  std::int64_t depth, count;
  std::int64_t bytes_of_a, bytes;  // of a block: a first, then b
};

struct Tiles {
  Tiles(const cpu::Kernels& kernels, std::int64_t m, std::int64_t n) {
    std::int64_t row_tiles = divide_up(m, kTileRows), column_tiles = divide_up(n, kTileColumns);
    for (;;) {
      rows = round_up(divide_up(m, row_tiles), kernels.product_rows);
      columns = round_up(divide_up(n, column_tiles), kernels.product_columns);
      down = divide_up(m, rows);
      count = down * divide_up(n, columns);
      const bool may_cut_rows = rows / 2 >= kLeastRows, may_cut_columns = columns / 2 >= kLeastColumns;
      if (count >= kFewTiles || (!may_cut_rows && !may_cut_columns)) return;
      (may_cut_columns && (columns >= rows || !may_cut_rows) ? column_tiles : row_tiles) *= 2;
    }
  }
  std::int64_t rows, columns;
  std::int64_t down, count;  // tiles of a column of tiles, of all
};

// How an operand is cut into pieces that a task packs. Rows are read whole or, if they are transposed, panels packed
// whole.
struct Pieces {
  Pieces(const MatrixBatch& matrix, bool is_b, std::int64_t length, std::int64_t depth, std::int64_t panel_length)
      : along_rows(matrix.transposed == is_b), extent(length), panel(panel_length) {
    piece_depth = along_rows ? depth : kPieceDepth;
    piece_extent = std::max(panel, kPieceElements / piece_depth / panel * panel);
    across = divide_up(extent, piece_extent);
    count = across * divide_up(depth, piece_depth);
  }
  bool along_rows;
  std::int64_t extent, panel;  // rows of a or columns of b, and those of a panel
  std::int64_t piece_depth, piece_extent;
  std::int64_t across, count;
};

// A product, or the part of its result that is summed at once, with what is packed of it at once.
class Packed {
 public:
  Packed(const BatchedProduct& product, const PackedRoom& room, void* workspace)
      : p_(product),
        kernels_(kernels_of(product.a.dtype, product.b.dtype)),
        blocks_(kernels_, product.m, product.n, product.k),
        tiles_(kernels_, product.m, product.n),
        a_(product.a, false, product.m, blocks_.depth, kernels_.product_rows),
        b_(product.b, true, product.n, blocks_.depth, kernels_.product_columns),
        panels_(static_cast<char*>(workspace)),
        sums_(product.c.dtype == DType::fp32 ? nullptr : panels_ + room.panel_bytes) {
    const std::int64_t fit = std::max<std::int64_t>(1, room.panel_bytes / blocks_.bytes);
    has_room_ahead_ = fit >= 2 && fit < blocks_.count * p_.count;
    const std::int64_t at_once = has_room_ahead_ ? fit / 2 : fit;
    half_ = has_room_ahead_ ? at_once * blocks_.bytes : 0;
    blocks_at_once_ = divide_up(blocks_.count, divide_up(blocks_.count, std::min(at_once, blocks_.count)));
    products_at_once_ = std::max<std::int64_t>(1, at_once / blocks_.count);
    if (sums_ != nullptr)
      products_at_once_ = std::clamp<std::int64_t>(room.sums_bytes / (4 * p_.m * p_.n), 1, products_at_once_);
  }

  // Several threads pack a part while they multiply the one before it, and so wait for each other once for each part.
  // One thread keeps the caches smaller.
  void run(const core::RunContext& context) const {
    const std::int64_t parts = divide_up(p_.count, products_at_once_) * divide_up(blocks_.count, blocks_at_once_);
    const bool packs_ahead = has_room_ahead_ && context.threads > 1;
    for (std::int64_t i = 0; i < parts; ++i) {
      const Part part = part_of(i, packs_ahead);
      if (i == 0 || !packs_ahead)
        cpu::run_cancellable(context, context.threads, pieces_of(part),
                             [&](std::int64_t index, int) { pack(part, index); });
      const bool goes_on = packs_ahead && i + 1 < parts;
      const Part next = goes_on ? part_of(i + 1, true) : Part{};
      const std::int64_t tiles = part.products * tiles_.count;
      cpu::run_cancellable(context, context.threads, tiles + pieces_of(next), [&](std::int64_t index, int) {
        index < tiles ? multiply(part, index) : pack(next, index - tiles);
      });
    }
  }

 private:
  // Some blocks of a product, or all of some products, and where their panels lie.
  struct Part {
    std::int64_t number = 0, products = 0, block = 0, blocks = 0;
    char* panels = nullptr;
  };

  Part part_of(std::int64_t index, bool beside) const {
    const std::int64_t of_product = divide_up(blocks_.count, blocks_at_once_);
    const std::int64_t number = index / of_product * products_at_once_, block = index % of_product * blocks_at_once_;
    return {number, std::min(products_at_once_, p_.count - number), block,
            std::min(blocks_at_once_, blocks_.count - block), panels_ + (beside ? index % 2 * half_ : 0)};
  }

  std::int64_t pieces_of(const Part& part) const { return part.products * part.blocks * (a_.count + b_.count); }

  std::int64_t depth_of(std::int64_t block) const { return std::min(blocks_.depth, p_.k - block * blocks_.depth); }

  // Operands (of 4 bytes) of one row of a or column of b in a block; kernels pad it.
  std::int64_t steps_of(std::int64_t block) const {
    return round_up(divide_up(depth_of(block), kernels_.product_pairs), 4);
  }

  void pack(const Part& part, std::int64_t index) const {
    const std::int64_t slot = index / (a_.count + b_.count);
    const std::int64_t number = part.number + slot / part.blocks, block = part.block + slot % part.blocks;
    index %= a_.count + b_.count;
    const bool is_b = index >= a_.count;
    if (is_b) index -= a_.count;
    const Pieces& pieces = is_b ? b_ : a_;
    const std::int64_t first = index % pieces.across * pieces.piece_extent;
    const std::int64_t k = index / pieces.across * pieces.piece_depth, depth = depth_of(block);
    if (k >= depth) return;
    const std::int64_t at = block * blocks_.depth + k;
    const MatrixBatch from = is_b ? p_.b.number(number).within(at, first) : p_.a.number(number).within(first, at);
    const std::int64_t step = k / kernels_.product_pairs, steps = steps_of(block);
    char* const to = part.panels + slot * blocks_.bytes + (is_b ? blocks_.bytes_of_a : 0);
    kernels_.pack_panels({.from = {from.data, element_of(from.dtype), 0, from.row_stride},
                          .along_rows = pieces.along_rows,
                          .of_b = is_b,
                          .count = std::min(pieces.piece_extent, pieces.extent - first),
                          .depth = std::min(pieces.piece_depth, depth - k),
                          .to = to + (first * steps + step * pieces.panel) * 4,
                          .panel_stride = pieces.panel * steps});
  }

  void multiply(const Part& part, std::int64_t index) const {
    const std::int64_t slot = index / tiles_.count, number = part.number + slot;
    index %= tiles_.count;
    const std::int64_t row = index % tiles_.down * tiles_.rows, column = index / tiles_.down * tiles_.columns;
    const MatrixBatch result = p_.c.number(number).from(row, column);
    MatrixBatch sums = result;
    if (sums_ != nullptr) sums = MatrixBatch{sums_ + slot * p_.m * p_.n * 4, DType::fp32, p_.n}.from(row, column);
    const std::int64_t rows = std::min(tiles_.rows, p_.m - row), columns = std::min(tiles_.columns, p_.n - column);
    for (std::int64_t i = 0; i < part.blocks; ++i) {
      const char* const panels = part.panels + (slot * part.blocks + i) * blocks_.bytes;
      const std::int64_t steps = steps_of(part.block + i);
      kernels_.product({.a = panels + row * steps * 4,
                        .b = panels + blocks_.bytes_of_a + column * steps * 4,
                        .rows = rows,
                        .columns = columns,
                        .depth = depth_of(part.block + i),
                        .alpha = p_.alpha,
                        .beta = part.block + i == 0 ? p_.beta : 1.0f,
                        .c = static_cast<float*>(target_of(sums)),
                        .c_stride = sums.row_stride});
    }
    if (part.block + part.blocks < blocks_.count || (sums_ == nullptr && p_.bias.data == nullptr)) return;
    MatrixBatch bias = p_.bias;
    if (bias.data != nullptr) bias = bias.number(number).from(0, column);
    kernels_.convert({{sums.data, cpu::Element::fp32, 0, sums.row_stride},
                      {target_of(result), element_of(result.dtype), 0, result.row_stride},
                      {bias.data, element_of(bias.dtype), 0, 0},
                      rows,
                      columns,
                      1.0f,
                      0.0f});
  }

  const BatchedProduct& p_;
  const cpu::Kernels& kernels_;
  const Blocks blocks_;
  const Tiles tiles_;
  const Pieces a_, b_;
  char *panels_, *sums_;
  bool has_room_ahead_;
  std::int64_t half_;  // bytes of the panels of a part, if they lie beside those of the next one
  std::int64_t blocks_at_once_, products_at_once_;  // several products only if all their blocks fit
};

}  // namespace

void PackedRoom::grow_to(const PackedRoom& other) {
  panel_bytes = std::max(panel_bytes, other.panel_bytes);
  sums_bytes = std::max(sums_bytes, other.sums_bytes);
}

PackedRoom packed_room(const WholeProduct& p) {
  const bool rounds = p.result != DType::fp32;
  const std::int64_t m = rounds ? std::min(p.m, kSumsRows) : p.m, n = rounds ? std::min(p.n, kSumsColumns) : p.n;
  const Blocks blocks(host_kernels(p.operands), m, n, p.k);
  const std::int64_t at_once = std::clamp<std::int64_t>(kPackedBytes / blocks.bytes, 1, blocks.count);
  const std::int64_t parts = at_once < blocks.count ? 2 : 1;  // that lie there at the same time
  return {cpu::align_up(parts * at_once * blocks.bytes), rounds ? cpu::align_up(m * n * 4) : 0};
}

std::string packed_words(const WholeProduct& p) {
  const Tiles tiles(host_kernels(p.operands), p.m, p.n);
  const Blocks blocks(host_kernels(p.operands), p.m, p.n, p.k);
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) + ": " +
         std::to_string(tiles.count) + " tiles of " + std::to_string(tiles.rows) + " x " +
         std::to_string(tiles.columns) + ", " + std::to_string(std::min(blocks.depth, p.k)) + " of " +
         std::to_string(p.k) + " products of a sum at a time";
}

void multiply_packed(const BatchedProduct& p, const PackedRoom& room, void* workspace,
                     const core::RunContext& context) {
  if (p.c.dtype == DType::fp32) return Packed(p, room, workspace).run(context);
  for (std::int64_t row = 0; row < p.m; row += kSumsRows) {
    for (std::int64_t column = 0; column < p.n; column += kSumsColumns) {
      BatchedProduct part = p;
      part.m = std::min(kSumsRows, p.m - row);
      part.n = std::min(kSumsColumns, p.n - column);
      part.a = p.a.within(row, 0);
      part.b = p.b.within(0, column);
      part.c = p.c.from(row, column);
      if (p.bias.data != nullptr) part.bias = p.bias.from(0, column);
      Packed(part, room, workspace).run(context);
    }
  }
}

}  // namespace fovea::linear
