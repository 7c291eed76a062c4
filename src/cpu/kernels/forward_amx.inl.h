// Forward with both products in AMX's tile registers; the softmax is that of forward.inl.h. Scores go through a buffer
// in the L1 cache, one step of keys at a time. The products of the next scores, and of the previous block's P and V,
// stand between the exponentials of the steps, so that the processor computes them meanwhile.
#pragma once

#include "cpu/kernels/forward.inl.h"
#include "cpu/kernels/products_amx.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kScoreRows = 2 * kTileStep;  // keys in the buffer: those of the softmax and of the next products

struct AmxForwardScratch {
  ForwardScratch softmax;  // its probabilities are those of the block with scores
  Operand* pending;        // [kKeyBlock / kPairs][kQueries], P of the block before
  float* scores;           // [kScoreRows][kQueries]
  uint16_t* words;         // [kTileStep][dimension, in whole steps]
  Operand *k, *v;          // one packed block, if the task packs its own
};

int64_t amx_operands_of_k(const Shape& s) { return tiled_operands(kKeyBlock, s.dim_qk); }
int64_t amx_operands_of_v(const Shape& s) { return tiled_operands(s.dim_v, kKeyBlock); }

int64_t carve(const Shape& shape, int64_t rows, bool packs_itself, char* base, AmxForwardScratch& s) {
  Scratch memory{base, 0};
  const int64_t tiles = divide_up(rows, kQueries), words = words_of(larger(shape.dim_qk, shape.dim_v));
  s.softmax.tiles = memory.take<ForwardTile>(tiles);
  s.softmax.probabilities = memory.take<Operand>(kKeyBlock / kPairs * kQueries);
  s.pending = memory.take<Operand>(kKeyBlock / kPairs * kQueries);
  s.scores = memory.take<float>(kScoreRows * kQueries);
  s.words = memory.take<uint16_t>(kTileStep * words);
  s.k = packs_itself ? memory.take<Operand>(amx_operands_of_k(shape)) : nullptr;
  s.v = packs_itself ? memory.take<Operand>(amx_operands_of_v(shape)) : nullptr;
  s.softmax.rows = memory.take<float>(kQueries * padded(shape.dim_v));
  s.softmax.block_sum = memory.take<float>(kQueries);
  s.softmax.block_exact = memory.take<float>(kQueries);
  s.softmax.factor = memory.take<float>(kQueries);
  for (int64_t t = 0; t < tiles; ++t) {
    ForwardTile tile{};
    tile.q = memory.take<Operand>(words_of(shape.dim_qk) / kPairs * kQueries);
    tile.out = memory.take<float>(padded(shape.dim_v) * kQueries);
    tile.maximum = memory.take<float>(kQueries);
    tile.limit = memory.take<float>(kQueries);
    tile.sum = memory.take<float>(kQueries);
    tile.exact = memory.take<float>(kQueries);
    if (base != nullptr) s.softmax.tiles[t] = tile;
  }
  return memory.used;
}

void pack_amx_block(const Shape& shape, const InputRows& k, const InputRows& v, int64_t first_key, uint16_t* words,
                    Operand* packed_k, Operand* packed_v) {
  const int64_t keys = smaller(kKeyBlock, shape.len_k - first_key);
  pack_rows(k, first_key, keys, kKeyBlock / kTileSide, shape.dim_qk, packed_k);
  pack_key_columns(v, first_key, keys, shape.dim_v, words, packed_v);
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
    const float* const row = buffer + key % kScoreRows * kQueries;
    FOVEA_UNROLL for (int m = 0; m < M; ++m) {
      FOVEA_UNROLL for (int n = 0; n < N; ++n) x[m][n] = load(row + m * kQueries + n * kLanes);
    }
  }
};

template <int N>
FOVEA_INLINE void multiply_scores(const Shape& shape, const AmxForwardScratch& s, const AmxBlock& block, int64_t key) {
  multiply_keys<N>(block.k, key, block.tile->q, shape.dim_qk, s.scores + key % kScoreRows * kQueries);
}

// Part `part` of `parts` of the pending block's output: O^T += V^T P.
void add_output(const Shape& shape, const AmxForwardScratch& s, const AmxBlock& pending, int64_t part, int64_t parts) {
  if (pending.tile == nullptr) return;
  const auto add = pending.tile->rows > kLanes ? add_columns_part<2> : add_columns_part<1>;
  add(pending.v, shape.dim_v, pending.begin, pending.end, s.pending, pending.tile->out, part, parts);
}

// Adds the block's sums. If a maximum has risen, the output of the earlier blocks, which is complete now, is rescaled.
template <int N>
FOVEA_INLINE void finish_softmax(const Shape& shape, const ForwardScratch& s, const ForwardTile& tile) {
  bool risen = false;
  Vec factor[N];
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    factor[n] = load(s.factor + n * kLanes);
    risen = risen || any(less(factor[n], broadcast(1.0f)));
    float *const sum = tile.sum + n * kLanes, *const exact = tile.exact + n * kLanes;
    store(sum, fma(load(sum), factor[n], load(s.block_sum + n * kLanes)));
    store(exact, fma(load(exact), factor[n], load(s.block_exact + n * kLanes)));
  }
  if (!risen) return;
  for (int64_t d = 0; d < shape.dim_v; ++d) {
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      float* const out = tile.out + d * kQueries + n * kLanes;
      store(out, mul(load(out), factor[n]));
    }
  }
}

// P of a block, and meanwhile the output of the pending one. N vectors hold queries.
template <int N, class Score>
__attribute__((noinline)) void amx_softmax(const Shape& shape, const AmxForwardScratch& s, const AmxBlock& block,
                                           const AmxBlock& pending) {
  const ForwardTile& tile = *block.tile;
  const Interval common{tile.visible.common.begin - block.first_key, tile.visible.common.end - block.first_key};
  EdgeMask edge;
  if (block.begin < common.begin || common.end < block.end) edge.set(tile.visible, block.first_key);
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    store(s.softmax.block_sum + n * kLanes, zero());
    store(s.softmax.block_exact + n * kLanes, zero());
    store(s.softmax.factor + n * kLanes, broadcast(1.0f));
  }
  multiply_scores<N>(shape, s, block, block.begin);
  for (int64_t key = block.begin; key < block.end; key += kTileStep) {
    if (key + kTileStep < block.end) multiply_scores<N>(shape, s, block, key + kTileStep);
    add_output(shape, s, pending, (key - block.begin) / kTileStep, (block.end - block.begin) / kTileStep);
    for (int64_t row = key; row < key + kTileStep; row += kTileRows) {
      const bool inside = common.begin <= row && row + kTileRows <= common.end;
      softmax_tile<N, Score>(shape, tile, s.softmax, BufferedScores{s.scores}, block.first_key, block.begin, row,
                             inside ? nullptr : &edge);
    }
  }
  finish_softmax<N>(shape, s.softmax, tile);
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
      pack_amx_block(shape, task.k, task.v, first_key, s.words, s.k, s.v);
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
  for (int64_t t = 0; t < tiles; ++t) {
    ForwardTile& tile = s.softmax.tiles[t];
    tile.first_row = task.first_row + t * kQueries;
    tile.rows = smaller(kQueries, task.rows - t * kQueries);
    find_visible(shape, tile.first_row, tile.rows, tile.visible);
    read_query_words(task.q, shape.group, tile.first_row, tile.rows, shape.dim_qk, shape.sign, s.words);
    pack_query_words(s.words, shape.dim_qk, tile.q);
    clear_tile(shape, tile);
    any = {smaller(any.begin, tile.visible.any.begin), larger(any.end, tile.visible.any.end)};
  }
  configure_tiles();
  const bool whole = amx_forward_blocks<Score>(task, s, any);
  release_tiles();
  for (int64_t t = 0; whole && t < tiles; ++t)
    finalize_tile(task, s.softmax, s.softmax.tiles[t], s.softmax.tiles[t].first_row);
  return whole;
}

void amx_pack(const PackTask& task) {
  pack_amx_block(*task.shape, task.k, task.v, task.first_key, static_cast<uint16_t*>(task.scratch),
                 static_cast<Operand*>(task.packed_k), static_cast<Operand*>(task.packed_v));
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
