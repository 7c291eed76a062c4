// Backward with all five products in AMX's tile registers; loops and formulas are those of backward.inl.h. The products
// of the next step of keys stand before the exponentials of this one, so that the processor computes them meanwhile.
#pragma once

#include "cpu/kernels/backward.inl.h"
#include "cpu/kernels/products_amx.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kRowOperands = kQueries / kPairs;  // of P and dS, of one key
static_assert(kRowOperands == kTileSide);

// delta = rowsum(dout * out): the diagonal of out dout^T, so each sum has the order of dP's. If a row sees one key, out
// is that key's v, and dP - delta is exactly 0. As bf16, out of fp32 is split into its leading half and the rest.
void sum_amx_delta(const QueryPackTask& task, const QueryPackScratch& s, const BackwardTile& tile) {
  const Shape& shape = *task.shape;
  const int64_t width = padded(shape.dim_v), stride = operand_stride(shape.dim_v);
  read_rows(task.out, shape.group, tile.first_row, tile.rows, shape.dim_v, s.rows, kQueries, width);
  __builtin_memset(s.out, 0, static_cast<uint64_t>(kQueries * stride * kOperandBytes));
  for (int part = 0; part < (task.out.element == Element::fp32 ? 2 : 1); ++part) {
    for (int64_t row = 0; row < kQueries; ++row) {
      for (int64_t d = 0; d < width; d += kLanes) {
        float* const x = s.rows + row * width + d;
        store_query_operands(s.out + row * stride, d, load(x));
        store(x, sub(load(x), round_to_operand(load(x))));
      }
    }
    for (int64_t w = 0; w < kQueries; w += kTileSide) {
      alignas(64) float square[kTileSide * kTileSide];
      zero_tiles<1, 1>();
      multiply_tiles<1, 1, Cached::stays>({s.out + w * stride, 0, kTileSide, stride * kOperandBytes},
                                          {tile.dout + w, kTileSide * kQueries, kQueries * kOperandBytes},
                                          stride / kTileSide);
      store_tiles<1, 1>(square, kTileSide);
      for (int64_t i = 0; i < kTileSide; ++i)
        tile.delta[w + i] = (part == 0 ? 0.0f : tile.delta[w + i]) + square[i * kTileSide + i];
    }
  }
}

// sums[key][d] += sum over the queries of all parts of scores[key][query] * rows[query][d], of one step of keys and N
// tiles of columns.
template <int N>
void add_step_sums(const KeySum* parts, int64_t count, int64_t key, int64_t d, int64_t width, float* sums) {
  load_tiles<2, N>(sums + key * width + d, width);
  for (int64_t i = 0; i < count; ++i) {
    const KeySum& part = parts[i];
    if (key < part.keys.begin || part.keys.end <= key) continue;
    multiply_tiles<2, N, Cached::stays>({part.scores + key * kRowOperands, kTileOperands, 0, kTileRowBytes},
                                        {part.rows + d, 0, width * kOperandBytes}, 1);
  }
  store_tiles<2, N>(sums + key * width + d, width);
}

struct AmxProducts {
  static constexpr int64_t kScoreKeys = kTileStep, kSumKeys = kTileStep;

  static int64_t steps(int64_t dim) { return operand_stride(dim); }

  static void delta(const QueryPackTask& task, const QueryPackScratch& s, const BackwardTile& tile) {
    sum_amx_delta(task, s, tile);
  }

  static void pack_keys(const InputRows& rows, int64_t first, int64_t keys, int64_t dim, Operand* to) {
    read_operand_rows(rows, 1, first, keys, dim, to, kBackwardKeys, steps(dim));
  }

  static void pack_key_columns(const InputRows& rows, int64_t first, int64_t keys, int64_t dim, Operand*, Operand* to) {
    pack_key_tiles<kBackwardKeys>(rows, first, keys, dim, to);
  }

  // P, dS and dQ of a tile. A tile register has the pairs of all queries, so all vectors are computed.
  template <class Score>
  static void differentiate_tile(const Shape& shape, const BackwardTile& tile, float* dq, const TileScores& to,
                                 const BackwardBlock& block, const BlockRange& range, Wanted wanted) {
    const BlockEdges edges(tile.visible, block.first_key, range.keys);
    const auto multiply = [&](int64_t key) {
      multiply_step<kTileVectors>(block.k, key, tile.q, shape.dim_qk, to.products + key * kQueries);
      if (wanted.ds()) multiply_step<kTileVectors>(block.v, key, tile.dout, shape.dim_v, to.dp + key * kQueries);
    };
    multiply(range.keys.begin);
    for (int64_t key = range.keys.begin; key < range.keys.end; key += kTileStep) {
      if (key + kTileStep < range.keys.end) multiply(key + kTileStep);
      differentiate<kTileVectors, Score>(shape, tile, to, block.first_key, {key, key + kTileStep}, wanted.ds(), edges);
    }
    if (wanted.dq)
      add_columns_part<kBackwardKeys, kTileVectors>(block.k_columns, shape.dim_qk, range.keys.begin, range.keys.end,
                                                    to.ds_keys, dq, 0, 1);
  }

  static void add_sums(const KeySum* parts, int64_t count, int64_t width, Interval keys, float* sums) {
    for (int64_t key = keys.begin; key < keys.end; key += kTileStep) {
      for (int64_t d = 0; d < width; d += 2 * kTileSide)
        (d + kTileSide < width ? add_step_sums<2> : add_step_sums<1>)(parts, count, key, d, width, sums);
    }
  }
};

template <class Score>
bool amx_backward(const BackwardTask& task) {
  configure_tiles();
  const bool whole = backward<Score, AmxProducts>(task);
  release_tiles();
  return whole;
}

void amx_pack_query_tile(const QueryPackTask& task) {
  configure_tiles();
  pack_query_tile<AmxProducts>(task);
  release_tiles();
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
