// All row tiles add the products of some K blocks, which are packed; threads that find no tile left pack the next K
// blocks of b. Blocks and tiles depend on the shape alone, so no sum depends on the number of threads.
#include "linear/packed_product.h"

#include <algorithm>

#include "cpu/call.h"
#include "cpu/tasks.h"
#include "linear/host_kernels.h"

namespace fovea::linear {
namespace {

using cpu::divide_up, cpu::round_up;

// The K blocks of b that are packed at once, twice: packed b stays in the caches until it is read, unless a single block
// is larger.
constexpr std::int64_t kPackedBytes = std::int64_t{1} << 22;

// One product, or a part of its result, with the panels that are packed at once.
class Packed {
 public:
  Packed(const BatchedProduct& product, const PackedLayout& layout, const PackedPart& part, const PackedRoom& room,
         void* workspace)
      : p_(product),
        kernels_(layout.kernels),
        blocks_(layout.blocks),
        tiles_(part.tiles),
        pieces_(part.pieces[product.b.transposed ? 1 : 0]),
        block_bytes_(part.block_bytes),
        room_(room),
        panels_(static_cast<char*>(workspace)),
        rows_(panels_ + room.panel_bytes),
        sums_(product.c.dtype == DType::fp32 ? nullptr : rows_ + room.workers * room.row_bytes) {
    const std::int64_t fit = std::max<std::int64_t>(1, room.panel_bytes / 2 / block_bytes_);
    blocks_at_once_ = divide_up(blocks_.count, divide_up(blocks_.count, std::min(fit, blocks_.count)));
    products_at_once_ = std::max<std::int64_t>(1, fit / blocks_.count);
    if (sums_ != nullptr)
      products_at_once_ = std::clamp<std::int64_t>(room.sums_bytes / (4 * p_.m * p_.n), 1, products_at_once_);
  }

  void run(const core::RunContext& context) const {
    Part part = part_at(0, 0, panels_);
    cpu::run_cancellable(context, context.threads, pieces_of(part),
                         [&](std::int64_t index, int) { pack_columns(part, index); });
    while (part.products > 0) {
      const Part next = after(part);
      const std::int64_t tiles = part.products * tiles_.count;
      cpu::run_cancellable(context, cpu::workers_of(context, room_.workers, tiles), tiles + pieces_of(next),
                           [&](std::int64_t index, int worker) {
                             index < tiles ? multiply(part, index, worker) : pack_columns(next, index - tiles);
                           });
      part = next;
    }
  }

 private:
  // Some blocks of one product, or all blocks of some products, and the place of their panels.
  struct Part {
    std::int64_t number, products, block, blocks;
    char* panels;
  };

  Part part_at(std::int64_t number, std::int64_t block, char* panels) const {
    return {number, std::min(products_at_once_, p_.count - number), block,
            std::min(blocks_at_once_, blocks_.count - block), panels};
  }

  // The part after the last one has no products.
  Part after(const Part& part) const {
    char* const panels = part.panels == panels_ ? panels_ + room_.panel_bytes / 2 : panels_;
    const std::int64_t block = part.block + part.blocks;
    return block < blocks_.count ? part_at(part.number, block, panels) : part_at(part.number + part.products, 0, panels);
  }

  std::int64_t pieces_of(const Part& part) const { return part.products * part.blocks * pieces_.count; }

  std::int64_t depth_of(std::int64_t block) const { return std::min(blocks_.depth, p_.k - block * blocks_.depth); }

  // Operands (of 4 bytes) of one row of a or column of b in a block; kernels pad it.
  std::int64_t steps_of(std::int64_t block) const {
    return round_up(divide_up(depth_of(block), kernels_.product_pairs), 4);
  }

  // The panels of b of a block, from a column on.
  char* columns_at(const Part& part, std::int64_t slot, std::int64_t block, std::int64_t column) const {
    return part.panels + (slot * part.blocks + block - part.block) * block_bytes_ + column * steps_of(block) * 4;
  }

  void pack_columns(const Part& part, std::int64_t index) const {
    const std::int64_t all = index / pieces_.count, slot = all / part.blocks, block = part.block + all % part.blocks;
    index %= pieces_.count;
    const std::int64_t column = index % pieces_.across * pieces_.columns, k = index / pieces_.across * pieces_.depth;
    const std::int64_t depth = depth_of(block);
    if (k >= depth) return;
    const MatrixBatch from = p_.b.number(part.number + slot).within(block * blocks_.depth + k, column);
    const std::int64_t panel = kernels_.product_columns, step = k / kernels_.product_pairs;
    kernels_.pack_panels({.from = {from.data, element_of(from.dtype), 0, from.row_stride},
                          .along_rows = pieces_.along_depth,
                          .of_b = true,
                          .count = std::min(pieces_.columns, p_.n - column),
                          .depth = std::min(pieces_.depth, depth - k),
                          .to = columns_at(part, slot, block, column) + step * panel * 4,
                          .panel_stride = panel * steps_of(block)});
  }

  void pack_rows(std::int64_t number, std::int64_t block, std::int64_t row, std::int64_t rows, void* to) const {
    const MatrixBatch from = p_.a.number(number).within(row, block * blocks_.depth);
    kernels_.pack_panels({.from = {from.data, element_of(from.dtype), 0, from.row_stride},
                          .along_rows = !from.transposed,
                          .of_b = false,
                          .count = rows,
                          .depth = depth_of(block),
                          .to = to,
                          .panel_stride = kernels_.product_rows * steps_of(block)});
  }

  void multiply(const Part& part, std::int64_t index, int worker) const {
    const std::int64_t slot = index / tiles_.count, number = part.number + slot;
    const std::int64_t row_tile = index % tiles_.count % tiles_.down;
    const std::int64_t row = tiles_.first_row(row_tile), column = index % tiles_.count / tiles_.down * tiles_.columns;
    const std::int64_t rows = std::min(tiles_.first_row(row_tile + 1), p_.m) - row;
    const std::int64_t columns = std::min(tiles_.columns, p_.n - column);
    const MatrixBatch result = p_.c.number(number).from(row, column);
    MatrixBatch sums = result;
    if (sums_ != nullptr) sums = MatrixBatch{sums_ + slot * p_.m * p_.n * 4, DType::fp32, p_.n}.from(row, column);
    char* const packed_rows = rows_ + worker * room_.row_bytes;
    for (std::int64_t block = part.block; block < part.block + part.blocks; ++block) {
      pack_rows(number, block, row, rows, packed_rows);
      for (std::int64_t at = 0; at < columns; at += kTileColumns) {
        // After the last columns: the first columns of the next block or, in the last block, of this one, which the
        // next tile reads.
        const bool is_last = at + kTileColumns >= columns;
        const std::int64_t next = is_last ? 0 : at + kTileColumns;
        const std::int64_t next_block = is_last && block + 1 < part.block + part.blocks ? block + 1 : block;
        kernels_.product({.a = packed_rows,
                          .b = columns_at(part, slot, block, column + at),
                          .rows = rows,
                          .columns = std::min(kTileColumns, columns - at),
                          .depth = depth_of(block),
                          .alpha = p_.alpha,
                          .beta = block == 0 ? p_.beta : 1.0f,
                          .c = static_cast<float*>(target_of(sums.from(0, at))),
                          .c_stride = sums.row_stride,
                          .next = columns_at(part, slot, next_block, column + next),
                          .next_bytes = std::min(kTileColumns, columns - next) * steps_of(next_block) * 4});
      }
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
  const Blocks& blocks_;
  const Tiles& tiles_;
  const Pieces& pieces_;
  const std::int64_t block_bytes_;  // the panels of a block of b
  const PackedRoom& room_;
  char *panels_, *rows_, *sums_;
  std::int64_t blocks_at_once_, products_at_once_;  // several products only if all their blocks fit
};

}  // namespace

void PackedRoom::grow_to(const PackedRoom& other) {
  panel_bytes = std::max(panel_bytes, other.panel_bytes);
  row_bytes = std::max(row_bytes, other.row_bytes);
  sums_bytes = std::max(sums_bytes, other.sums_bytes);
  workers = std::max(workers, other.workers);
}

PackedRoom packed_room(const PackedLayout& layout) {
  const PackedPart& largest = layout.part(0, 0);
  const std::int64_t m = layout.rows, n = layout.columns, block_bytes = largest.block_bytes;
  PackedRoom room;
  room.panel_bytes =
      2 * cpu::align_up(std::clamp<std::int64_t>(kPackedBytes / block_bytes, 1, layout.blocks.count) * block_bytes);
  room.row_bytes = cpu::align_up(largest.tiles.rows * layout.blocks.row_bytes);
  room.workers = cpu::most_workers(largest.tiles.count);
  if (layout.product.result != DType::fp32) room.sums_bytes = cpu::align_up(m * n * 4);
  return room;
}

std::string packed_words(const PackedLayout& layout) {
  const WholeProduct& p = layout.product;
  const Tiles& tiles = layout.part(0, 0).tiles;
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) + ": tiles of " +
         std::to_string(std::min(tiles.rows, p.m)) + " x " + std::to_string(std::min(tiles.columns, layout.columns)) +
         ", K in blocks of " + std::to_string(std::min(layout.blocks.depth, p.k));
}

void multiply_packed(const BatchedProduct& p, const PackedLayout& layout, const PackedRoom& room, void* workspace,
                     const core::RunContext& context) {
  for (std::int64_t row = 0; row < p.m; row += layout.rows) {
    for (std::int64_t column = 0; column < p.n; column += layout.columns) {
      BatchedProduct part = p;
      part.m = std::min(layout.rows, p.m - row);
      part.n = std::min(layout.columns, p.n - column);
      part.a = p.a.within(row, 0);
      part.b = p.b.within(0, column);
      part.c = p.c.from(row, column);
      if (p.bias.data != nullptr) part.bias = p.bias.from(0, column);
      Packed(part, layout, layout.part(row, column), room, workspace).run(context);
    }
  }
}

}  // namespace fovea::linear
