// Forward with both products in AMX's tile registers; the softmax is that of forward.inl.h. Scores go through a buffer
// in the L1 cache, one step of keys at a time. The products of the next scores, and of the previous block's P and V,
// stand between the exponentials of the steps, so that the processor computes them meanwhile.
#pragma once

#include "cpu/kernels/forward.inl.h"
#include "cpu/kernels/products_amx.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kScoreKeys = 2 * kTileStep;  // of the buffer of scores: of this step of keys and of the next

struct AmxForwardScratch {
  ForwardScratch softmax;  // its probabilities are those of the block with scores
  Operand* pending;        // [kKeyBlock / kPairs][kQueries], P of the block before
  float* scores;           // [kScoreKeys][kQueries]
  Operand* rows;           // [kQueries][operand stride of dim_qk]
  Operand *k, *v;          // one packed block, if the task packs its own
};

int64_t amx_operands_of_k(const Shape& s) { return kKeyBlock * operand_stride(s.dim_qk); }
int64_t amx_operands_of_v(const Shape& s) { return tiled_column_operands<kKeyBlock>(s.dim_v); }

int64_t carve(const Shape& shape, int64_t rows, bool packs_itself, char* base, AmxForwardScratch& s) {
  Scratch memory{base, 0};
  const int64_t tiles = divide_up(rows, kQueries), stride = operand_stride(shape.dim_qk);
  s.softmax.tiles = memory.take<ForwardTile>(tiles);
  s.softmax.probabilities = memory.take<Operand>(kKeyBlock / kPairs * kQueries);
  s.pending = memory.take<Operand>(kKeyBlock / kPairs * kQueries);
  s.scores = memory.take<float>(kScoreKeys * kQueries);
  s.rows = memory.take<Operand>(kQueries * stride);
  s.k = packs_itself ? memory.take<Operand>(amx_operands_of_k(shape)) : nullptr;
  s.v = packs_itself ? memory.take<Operand>(amx_operands_of_v(shape)) : nullptr;
  s.softmax.block_sum = memory.take<float>(kQueries);
  s.softmax.block_exact = memory.take<float>(kQueries);
  s.softmax.factor = memory.take<float>(kQueries);
  for (int64_t t = 0; t < tiles; ++t) {
    ForwardTile tile{};
    tile.q = memory.take<Operand>(stride * kQueries);
    tile.out = memory.take<float>(padded(shape.dim_v) * kQueries);
    tile.maximum = memory.take<float>(kQueries);
    tile.limit = memory.take<float>(kQueries);
    tile.sum = memory.take<float>(kQueries);
    tile.exact = memory.take<float>(kQueries);
    if (base != nullptr) s.softmax.tiles[t] = tile;
  }
  return memory.used;
}

void pack_amx_block(const Shape& shape, const InputRows& k, const InputRows& v, int64_t first_key, Operand* packed_k,
                    Operand* packed_v) {
  const int64_t keys = smaller(kKeyBlock, shape.len_k - first_key);
  read_operand_rows(k, 1, first_key, keys, shape.dim_qk, packed_k, round_up(keys, kTileStep),
                    operand_stride(shape.dim_qk));
  pack_key_tiles<kKeyBlock>(v, first_key, keys, shape.dim_v, packed_v);
}

// Packs a tile of queries as b: [operand stride of dim_qk][kQueries], with the scale's sign.
void pack_query_rows(const InputRows& q, const Shape& shape, int64_t first_row, int64_t count, Operand* rows,
                     Operand* to) {
  const int64_t stride = operand_stride(shape.dim_qk);
  read_operand_rows(q, shape.group, first_row, count, shape.dim_qk, rows, kQueries, stride);
  transpose(reinterpret_cast<const float*>(rows), stride, kQueries, stride, reinterpret_cast<float*>(to), kQueries);
  for (int64_t i = 0; shape.sign != 1.0f && i < stride * kQueries; i += kLanes)
    rescale_key_operands(to + i, broadcast(shape.sign), zero());
}

// One query tile and one key block. Keys are counted from the block's first.
struct AmxBlock {
  ForwardTile* tile;
  const Operand *k, *v;
  int64_t first_key;
  int64_t begin, end;  // the keys that some lane sees, in whole steps
};

// Scores of the buffer for the softmax.
struct BufferedScores {
  const float* buffer;

  template <int M, int N>
  FOVEA_INLINE void scores(Vec (&x)[M][N], int64_t key, const Operand*, int64_t) const {
    const float* const row = buffer + key % kScoreKeys * kQueries;
    FOVEA_UNROLL for (int m = 0; m < M; ++m) {
      FOVEA_UNROLL for (int n = 0; n < N; ++n) x[m][n] = load(row + m * kQueries + n * kLanes);
    }
  }
};

// Part `part` of `parts` of the pending block's output: O^T += V^T P.
void add_output(const Shape& shape, const AmxForwardScratch& s, const AmxBlock& pending, int64_t part, int64_t parts) {
  if (pending.tile == nullptr) return;
  const auto add = pending.tile->rows > kLanes ? add_columns_part<kKeyBlock, 2> : add_columns_part<kKeyBlock, 1>;
  add(pending.v, shape.dim_v, pending.begin, pending.end, s.pending, pending.tile->out, part, parts);
}

// P of a block, and meanwhile the output of the pending one. N vectors hold queries.
template <int N, class Score>
__attribute__((noinline)) void amx_softmax(const Shape& shape, const AmxForwardScratch& s, const AmxBlock& block,
                                           const AmxBlock& pending) {
  const ForwardTile& tile = *block.tile;
  const Interval common{tile.visible.common.begin - block.first_key, tile.visible.common.end - block.first_key};
  EdgeMask edge;
  if (block.begin < common.begin || common.end < block.end) edge.set(tile.visible, block.first_key);
  clear_block_sums<N>(s.softmax);
  const auto multiply = [&](int64_t key) {
    multiply_step<N>(block.k, key, tile.q, shape.dim_qk, s.scores + key % kScoreKeys * kQueries);
  };
  const BufferedScores scores{s.scores};
  multiply(block.begin);
  for (int64_t key = block.begin; key < block.end; key += kTileStep) {
    if (key + kTileStep < block.end) multiply(key + kTileStep);
    add_output(shape, s, pending, (key - block.begin) / kTileStep, (block.end - block.begin) / kTileStep);
    for (int64_t row = key; row < key + kTileStep; row += kTileRows) {
      if (common.begin <= row && row + kTileRows <= common.end)
        softmax_tile<TilePart<0, N, false>, Score>(shape, tile, s.softmax, scores, block.first_key, block.begin, row,
                                                   edge);
      else
        softmax_tile<TilePart<0, N, true>, Score>(shape, tile, s.softmax, scores, block.first_key, block.begin, row,
                                                  edge);
    }
  }
  rescale_output<N>(shape, tile, s.softmax);  // of the earlier blocks, which is complete now
  add_block_sums<N>(tile, s.softmax);
}

// The block becomes the pending one.
template <class Score>
void visit_block(const Shape& shape, AmxForwardScratch& s, const AmxBlock& block, AmxBlock& pending) {
  if (block.tile->rows > kLanes)
    amx_softmax<2, Score>(shape, s, block, pending);
  else
    amx_softmax<1, Score>(shape, s, block, pending);
  Operand* const free = s.pending;
  s.pending = s.softmax.probabilities;
  s.softmax.probabilities = free;
  pending = block;
}

template <class Score>
bool amx_forward_blocks(const ForwardTask& task, AmxForwardScratch& s, Interval keys) {
  const Shape& shape = *task.shape;
  const int64_t tiles = divide_up(task.rows, kQueries);
  AmxBlock pending{};
  for (int64_t block = keys.begin / kKeyBlock; block * kKeyBlock < keys.end; ++block) {
    if (task.cancel.raised(task.cancel.flag)) return false;
    const int64_t first_key = block * kKeyBlock;
    const Operand* k = static_cast<const Operand*>(task.packed_k) + block * amx_operands_of_k(shape);
    const Operand* v = static_cast<const Operand*>(task.packed_v) + block * amx_operands_of_v(shape);
    if (task.packed_k == nullptr) {
      add_output(shape, s, pending, 0, 1);  // it reads the block that is replaced
      pending = {};
      pack_amx_block(shape, task.k, task.v, first_key, s.k, s.v);
      k = s.k;
      v = s.v;
    }
    for (int64_t t = 0; t < tiles; ++t) {
      ForwardTile& tile = s.softmax.tiles[t];
      const Interval& seen = tile.visible.any;
      if (seen.begin >= first_key + kKeyBlock || first_key >= seen.end) continue;
      const int64_t begin = larger(0, seen.begin - first_key) / kTileStep * kTileStep,
                    end = smaller(kKeyBlock, round_up(seen.end - first_key, kTileStep));
      visit_block<Score>(shape, s, {&tile, k, v, first_key, begin, end}, pending);
    }
  }
  add_output(shape, s, pending, 0, 1);
  return true;
}

template <class Score>
bool amx_forward(const ForwardTask& task) {
  const Shape& shape = *task.shape;
  AmxForwardScratch s;
  carve(shape, task.rows, task.packed_k == nullptr, static_cast<char*>(task.scratch), s);
  const int64_t tiles = divide_up(task.rows, kQueries);
  Interval any{shape.len_k, 0};
  prefetch_tile<false>(task, task.q, 0, shape.dim_qk);
  for (int64_t t = 0; t < tiles; ++t) {
    prefetch_tile<false>(task, task.q, t + 1, shape.dim_qk);
    ForwardTile& tile = s.softmax.tiles[t];
    tile.first_row = task.first_row + t * kQueries;
    tile.rows = smaller(kQueries, task.rows - t * kQueries);
    find_visible(shape, tile.first_row, tile.rows, tile.visible);
    pack_query_rows(task.q, shape, tile.first_row, tile.rows, s.rows, tile.q);
    clear_tile(shape, tile);
    any = {smaller(any.begin, tile.visible.any.begin), larger(any.end, tile.visible.any.end)};
  }
  configure_tiles();
  const bool whole = amx_forward_blocks<Score>(task, s, any);
  release_tiles();
  if (!whole) return false;
  prefetch_tile<true>(task, task.out, 0, shape.dim_v);
  for (int64_t t = 0; t < tiles; ++t) {
    prefetch_tile<true>(task, task.out, t + 1, shape.dim_v);
    finalize_tile(task, s.softmax.tiles[t], s.softmax.tiles[t].first_row);
  }
  return true;
}

void amx_pack(const PackTask& task) {
  pack_amx_block(*task.shape, task.k, task.v, task.first_key, static_cast<Operand*>(task.packed_k),
                 static_cast<Operand*>(task.packed_v));
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
