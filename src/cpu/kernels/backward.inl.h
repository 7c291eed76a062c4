// Backward (Dao, "FlashAttention-2", arXiv 2307.08691, section 3.1): P is recomputed from lse, block by block. S, dP
// and dQ have queries in the lanes; dV and dK have head dimensions in the lanes. All five products read the same stored
// P and dS without transposing them. A task owns a chunk of keys with its dK and dV. It visits the query rows in order,
// so sums have a fixed order.
#pragma once

#include "cpu/kernels/backward_block.inl.h"
#include "cpu/kernels/reduce_dq.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// Chunks begin at multiples of it: of the keys of both kinds of register tile.
constexpr int64_t kChunkStep = kTileRows % kDimTileRows == 0 ? kTileRows : kTileRows * kDimTileRows / 2;
static_assert(kChunkStep % kTileRows == 0 && kChunkStep % kDimTileRows == 0);

constexpr int64_t kSlabBytes = 384 << 10;  // of the query tiles that read a key block while they are in the L2 cache
constexpr int64_t kMaxSlabTiles = 64;
// The tiles of a group add to dK and dV together, so that these are read and written less often.
constexpr int64_t kGroupTiles = larger(1, 96 * kPairs / kQueries);

struct BackwardScratch {
  BackwardTile* tiles[kMaxSlabTiles];
  float* dq[kMaxSlabTiles];  // [dim_qk][kQueries], not yet multiplied by the scale
  int64_t tile_count;
  TileScores scores[kGroupTiles];
  Operand* k;          // [block][kBackwardKeys * k_steps], packed for S
  Operand* v;          // [block][kBackwardKeys * v_steps], packed for dP
  Operand* k_columns;  // [block][padded dim_qk * kBackwardKeys / kPairs], packed for dQ
  float* dk;           // [key][padded dim_qk], not yet multiplied by the scale
  float* dv;           // [key][padded dim_v]
  Operand* operands;   // [kBackwardKeys][operand stride of dim_qk]
  float* rows;         // [kQueries][padded dim_qk]
  QueryPackScratch pack;
};

struct BackwardSizes {
  int64_t k_steps, v_steps, k_padded, v_padded, k_block, v_block, k_columns_block;
};

template <class Products>
BackwardSizes sizes_of(const Shape& s) {
  BackwardSizes z{};
  z.k_steps = Products::steps(s.dim_qk);
  z.v_steps = Products::steps(s.dim_v);
  z.k_padded = padded(s.dim_qk);
  z.v_padded = padded(s.dim_v);
  z.k_block = kBackwardKeys * z.k_steps;
  z.v_block = kBackwardKeys * z.v_steps;
  z.k_columns_block = kBackwardKeys / kPairs * z.k_padded;
  return z;
}

// `own_tiles`: the task packs query tiles; `own_dq`: it holds their dQ. Otherwise they are in memory of the call.
template <class Products>
int64_t carve(const Shape& shape, int64_t keys, bool own_tiles, bool own_dq, char* base, BackwardScratch& s) {
  const BackwardSizes z = sizes_of<Products>(shape);
  const int64_t blocks = divide_up(keys, kBackwardKeys), tiles = divide_up(shape.group * shape.len_q, kQueries),
                tile_bytes = backward_tile_bytes(shape) + dq_tile_floats(shape) * 4;
  Scratch memory{base, 0};
  const int64_t most = larger(kGroupTiles, kSlabBytes / tile_bytes / kGroupTiles * kGroupTiles);
  s.tile_count = larger(1, smaller(tiles, smaller(kMaxSlabTiles, most)));
  float* const products = kPairs > 1 ? memory.take<float>(kBackwardKeys * kQueries) : nullptr;
  float* const dp = kPairs > 1 ? memory.take<float>(kBackwardKeys * kQueries) : nullptr;
  for (TileScores& one : s.scores) {
    one.probabilities = memory.take<Operand>(kBackwardKeys * kQueries / kPairs);
    one.ds = memory.take<Operand>(kBackwardKeys * kQueries / kPairs);
    one.ds_keys = kPairs > 1 ? memory.take<Operand>(kBackwardKeys * kQueries / kPairs) : one.ds;
    one.products = in_place_of(one.probabilities, products);
    one.dp = in_place_of(one.ds, dp);
  }
  s.k = memory.take<Operand>(blocks * z.k_block);
  s.v = memory.take<Operand>(blocks * z.v_block);
  s.k_columns = memory.take<Operand>(blocks * z.k_columns_block);
  s.dk = memory.take<float>(blocks * kBackwardKeys * z.k_padded);
  s.dv = memory.take<float>(blocks * kBackwardKeys * z.v_padded);
  s.operands = memory.take<Operand>(kBackwardKeys * operand_stride(shape.dim_qk));
  s.rows = memory.take<float>(kQueries * z.k_padded);
  if (own_tiles) s.pack = carve_query_pack(shape, memory);
  for (int64_t t = 0; t < s.tile_count; ++t) {
    s.tiles[t] = own_tiles ? take_tile(shape, memory) : nullptr;
    s.dq[t] = own_dq ? memory.take<float>(dq_tile_floats(shape)) : nullptr;
  }
  return memory.used;
}

// The gradients that the call wants.
struct Wanted {
  bool dq, dk, dv;
  bool ds() const { return dq || dk; }
};

Wanted wanted_of(const BackwardTask& task) {
  return {task.dq.data != nullptr || task.dq_partial != nullptr, task.dk.data != nullptr, task.dv.data != nullptr};
}

// P, dS and dQ of one tile, whose queries fill N vectors.
template <int N, class Score>
void backward_tile(const Shape& shape, const BackwardTile& tile, float* dq, const TileScores& to,
                   const BackwardBlock& block, const BlockRange& range, Wanted wanted) {
  recompute<N, Score>(shape, tile, to, block, range, wanted.ds());
  if (wanted.dq) add_query_sums<N>(block.k_columns, to.ds_keys, range.keys, shape.dim_qk, dq);
}

// How the loops below compute and pack: in vectors, with keys as panels of kTileRows. A target with other products has
// a class of the same members.
struct VectorProducts {
  static constexpr int64_t kScoreKeys = kTileRows, kSumKeys = kDimTileRows;  // of register tiles

  static int64_t steps(int64_t dim) { return steps_of(dim); }

  static void delta(const QueryPackTask& task, const QueryPackScratch& s, const BackwardTile& tile) {
    sum_delta(task, s, tile);
  }

  // [kBackwardKeys / kTileRows][steps][kTileRows]
  static void pack_keys(const InputRows& rows, int64_t first, int64_t keys, int64_t dim, Operand* to) {
    for (int64_t r = 0; r < kBackwardKeys; r += kTileRows)
      pack_rows<kTileRows>(rows, first + r, smaller(kTileRows, keys - r), dim, to + r * steps(dim));
  }

  // For dQ, which contracts keys: [dim / kTileRows][kBackwardKeys / kPairs][kTileRows].
  static void pack_key_columns(const InputRows& rows, int64_t first, int64_t keys, int64_t dim, Operand* operands,
                               Operand* to) {
    constexpr int64_t kSteps = kBackwardKeys / kPairs, kWidth = kTileRows;
    const int64_t stride = operand_stride(dim);
    read_operand_rows(rows, 1, first, keys, dim, operands, kBackwardKeys, stride);
    for (int64_t step = 0; step < kSteps; ++step) {
      for (int64_t d = 0; d < padded(dim); d += kLanes) {
        alignas(64) Operand columns[kLanes];
        store_operands(columns, load_rows_of_step(operands + step * kPairs * stride, stride, d));
        for (int64_t part = 0; part < kLanes; part += kWidth)
          __builtin_memcpy(to + (d + part) * kSteps + step * kWidth, columns + part, kWidth * sizeof(Operand));
      }
    }
  }

  // P, dS and dQ of a tile.
  template <class Score>
  static void differentiate_tile(const Shape& shape, const BackwardTile& tile, float* dq, const TileScores& to,
                                 const BackwardBlock& block, const BlockRange& range, Wanted wanted) {
    const int64_t vectors = divide_up(tile.rows, kLanes);
    (vectors == 1   ? backward_tile<1, Score>
     : vectors == 2 ? backward_tile<2, Score>
                    : backward_tile<kTileVectors, Score>)(shape, tile, dq, to, block, range, wanted);
  }

  static void add_sums(const KeySum* parts, int64_t count, int64_t width, Interval keys, float* sums) {
    add_key_sums<kDimTileVectors>(parts, count, 0, width, keys, sums);
  }
};

template <class Products>
void pack_chunk(const BackwardTask& task, const BackwardScratch& s) {
  const Shape& shape = *task.shape;
  const BackwardSizes z = sizes_of<Products>(shape);
  const Wanted wanted = wanted_of(task);
  for (int64_t key = 0, block = 0; key < task.keys; key += kBackwardKeys, ++block) {
    const int64_t first = task.first_key + key, keys = smaller(kBackwardKeys, task.keys - key);
    Products::pack_keys(task.k, first, keys, shape.dim_qk, s.k + block * z.k_block);
    if (wanted.ds()) Products::pack_keys(task.v, first, keys, shape.dim_v, s.v + block * z.v_block);
    if (wanted.dq)
      Products::pack_key_columns(task.k, first, keys, shape.dim_qk, s.operands,
                                 s.k_columns + block * z.k_columns_block);
    for (int64_t i = key * z.k_padded; i < (key + kBackwardKeys) * z.k_padded; i += kLanes) store(s.dk + i, zero());
    for (int64_t i = key * z.v_padded; i < (key + kBackwardKeys) * z.v_padded; i += kLanes) store(s.dv + i, zero());
  }
}

// Computes one key block against a group of tiles: `count` from tile `first` of the slab on.
template <class Products, class Score>
void backward_group(const Shape& shape, const BackwardScratch& s, int64_t first, int64_t count,
                    const BackwardBlock& block, int64_t block_keys, Wanted wanted) {
  KeySum dv[kGroupTiles], dk[kGroupTiles];
  int64_t parts = 0;
  Interval all{kBackwardKeys, 0};
  for (int64_t t = first; t < first + count; ++t) {
    const BackwardTile& tile = *s.tiles[t];
    if (!sees(tile.visible, block.first_key, block.first_key + block_keys)) continue;
    const TileScores& to = s.scores[parts];
    const BlockRange range = range_of<Products>(tile, block.first_key, block_keys);
    Products::template differentiate_tile<Score>(shape, tile, s.dq[t], to, block, range, wanted);
    const int64_t steps = smaller(divide_up(tile.rows, kLanes), kTileVectors) * kLanes / kPairs;
    dv[parts] = {to.probabilities, tile.dout_rows, steps, range.sums};
    dk[parts] = {to.ds, tile.q_rows, steps, range.sums};
    all = {smaller(all.begin, range.sums.begin), larger(all.end, range.sums.end)};
    ++parts;
  }
  if (wanted.dv) Products::add_sums(dv, parts, padded(shape.dim_v), all, block.dv);
  if (wanted.dk) Products::add_sums(dk, parts, padded(shape.dim_qk), all, block.dk);
}

// Finds or packs the slab's tiles, and clears their dQ. A partial is written only for tiles that see the chunk;
// reduce_dq reads only those.
template <class Products>
void begin_slab(const BackwardTask& task, BackwardScratch& s, int64_t first_tile, int64_t tiles) {
  const Shape& shape = *task.shape;
  const bool own_dq = task.dq_partial == nullptr;
  const int64_t end_key = task.first_key + task.keys, size = dq_tile_floats(shape);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t tile = first_tile + t;
    if (task.packed != nullptr) {
      s.tiles[t] = reinterpret_cast<BackwardTile*>(static_cast<char*>(task.packed) + tile * backward_tile_bytes(shape));
    } else {
      QueryPackTask pack{};
      pack.shape = task.shape;
      pack.q = task.q, pack.out = task.out, pack.dout = task.dout, pack.lse = task.lse, pack.delta = task.delta;
      pack.sums_delta = wanted_of(task).ds() && task.delta.data == nullptr;
      pack.first_row = tile * kQueries;
      pack_tile<Products>(pack, s.pack, *s.tiles[t]);
    }
    if (!own_dq) s.dq[t] = task.dq_partial + tile * size;
    if (!own_dq && !sees(s.tiles[t]->visible, task.first_key, end_key)) continue;
    for (int64_t i = 0; i < size; i += kLanes) store(s.dq[t] + i, zero());
  }
}

// Computes all of the chunk's keys against the slab of query tiles that starts at `first_tile`.
template <class Products, class Score>
bool backward_slab(const BackwardTask& task, BackwardScratch& s, int64_t first_tile, int64_t tiles) {
  const Shape& shape = *task.shape;
  const BackwardSizes z = sizes_of<Products>(shape);
  begin_slab<Products>(task, s, first_tile, tiles);
  for (int64_t key = 0, b = 0; key < task.keys; key += kBackwardKeys, ++b) {
    if (task.cancel.raised(task.cancel.flag)) return false;
    const BackwardBlock block{s.k + b * z.k_block,     s.v + b * z.v_block,     s.k_columns + b * z.k_columns_block,
                              s.dk + key * z.k_padded, s.dv + key * z.v_padded, task.first_key + key};
    const int64_t block_keys = smaller(kBackwardKeys, task.keys - key);
    for (int64_t t = 0; t < tiles; t += kGroupTiles)
      backward_group<Products, Score>(shape, s, t, smaller(kGroupTiles, tiles - t), block, block_keys, wanted_of(task));
  }
  for (int64_t t = 0; t < tiles && task.dq.data != nullptr; ++t)
    write_dq(shape, s.dq[t], s.rows, s.tiles[t]->first_row, s.tiles[t]->rows, task.dq, task.accumulate);
  return true;
}

// The query tiles that the task visits: those with rows that see its chunk, or all if the task writes dq itself.
Interval tiles_of(const BackwardTask& task) {
  const Shape& shape = *task.shape;
  if (task.dq.data != nullptr) return {0, divide_up(shape.group * shape.len_q, kQueries)};
  const int64_t end_key = task.first_key + task.keys;
  const int64_t first = larger(0, task.first_key - shape.window_end + 1),
                end = smaller(shape.len_q, end_key - shape.window_begin);
  return {first * shape.group / kQueries, divide_up(end * shape.group, kQueries)};
}

template <class Score, class Products = VectorProducts>
bool backward(const BackwardTask& task) {
  const Shape& shape = *task.shape;
  const BackwardSizes z = sizes_of<Products>(shape);
  BackwardScratch s;
  carve<Products>(shape, task.keys, task.packed == nullptr, task.dq_partial == nullptr,
                  static_cast<char*>(task.scratch), s);
  pack_chunk<Products>(task, s);
  const Interval tiles = tiles_of(task);
  for (int64_t t = tiles.begin; t < tiles.end; t += s.tile_count) {
    if (!backward_slab<Products, Score>(task, s, t, smaller(s.tile_count, tiles.end - t))) return false;
  }
  if (task.dk.data != nullptr)
    write_rows(s.dk, z.k_padded, shape.scale, task.dk, 1, task.first_key, task.keys, shape.dim_qk, task.accumulate);
  if (task.dv.data != nullptr)
    write_rows(s.dv, z.v_padded, 1.0f, task.dv, 1, task.first_key, task.keys, shape.dim_v, task.accumulate);
  return true;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
