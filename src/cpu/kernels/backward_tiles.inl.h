// What backward keeps of a tile of queries, and how it is packed. A chunk's task packs the tiles itself, or all chunks
// of a sequence read tiles that were packed once.
#pragma once

#include "cpu/kernels/panels.inl.h"
#include "cpu/kernels/probability.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

struct BackwardTile {
  Operand* q;          // [steps of dim_qk][kQueries], with the scale's sign
  Operand* dout;       // [steps of dim_v][kQueries]
  Operand* q_rows;     // [kQueries / kPairs][padded dim_qk]
  Operand* dout_rows;  // [kQueries / kPairs][padded dim_v]
  float* lse;          // [kQueries], as Probability takes it
  float* delta;        // [kQueries]
  int64_t first_row, rows;
  Visibility visible;
};

// Null if `memory` only counts bytes.
BackwardTile* take_tile(const Shape& shape, Scratch& memory) {
  BackwardTile* const place = memory.take<BackwardTile>(1);
  BackwardTile tile{};
  tile.q = memory.take<Operand>(operand_stride(shape.dim_qk) * kQueries);
  tile.dout = memory.take<Operand>(operand_stride(shape.dim_v) * kQueries);
  tile.q_rows = memory.take<Operand>(kQueries / kPairs * padded(shape.dim_qk));
  tile.dout_rows = memory.take<Operand>(kQueries / kPairs * padded(shape.dim_v));
  tile.lse = memory.take<float>(kQueries);
  tile.delta = memory.take<float>(kQueries);
  if (place != nullptr) *place = tile;
  return place;
}

// A tile with its arrays. The tiles of a sequence that are packed once follow each other.
int64_t backward_tile_bytes(const Shape& shape) {
  Scratch memory{nullptr, 0};
  take_tile(shape, memory);
  return memory.used;
}

int64_t dq_tile_floats(const Shape& shape) { return padded(shape.dim_qk) * kQueries; }

struct QueryPackScratch {
  Operand* operands;  // [kQueries][operand stride]
  float* rows;        // [kQueries][padded dim_v]
  float* columns;     // [padded dim_v][kQueries]
  Operand* out;       // [dim_v / kPairs][kQueries]
};

QueryPackScratch carve_query_pack(const Shape& shape, Scratch& memory) {
  QueryPackScratch s{};
  const int64_t padded_v = padded(shape.dim_v);
  s.operands = memory.take<Operand>(kQueries * operand_stride(larger(shape.dim_qk, shape.dim_v)));
  s.rows = memory.take<float>(kQueries * padded_v);
  s.columns = memory.take<float>(padded_v * kQueries);
  s.out = memory.take<Operand>(padded_v * kQueries);
  return s;
}

// kLanes columns from column d on, of the kPairs rows that one operand contracts.
FOVEA_INLINE OperandVec load_rows_of_step(const Operand* rows, int64_t stride, int64_t d) {
  if constexpr (kPairs == 1) return load_operands(rows + d);
  const char* const first = reinterpret_cast<const char*>(rows + d / kPairs);
  return load_key_operands<Element::bf16>(first, first + stride * static_cast<int64_t>(sizeof(Operand)));
}

// Packs a tile of q or dout for both contractions: over the head dimension into `columns`, over the queries into
// `rows`.
void pack_both_ways(const InputRows& from, const Shape& shape, int64_t first_row, int64_t count, int64_t dim,
                    Operand* operands, Operand* columns, Operand* rows) {
  const int64_t stride = operand_stride(dim), width = padded(dim);
  Operand* const read = kPairs == 1 ? rows : operands;
  read_operand_rows(from, shape.group, first_row, count, dim, read, kQueries, stride);
  transpose(reinterpret_cast<const float*>(read), stride, kQueries, stride, reinterpret_cast<float*>(columns),
            kQueries);
  for (int64_t step = 0; kPairs > 1 && step < kQueries / kPairs; ++step) {
    for (int64_t d = 0; d < width; d += kLanes)
      store_operands(rows + step * width + d, load_rows_of_step(read + step * kPairs * stride, stride, d));
  }
}

// Reads lse and delta of a tile's queries. Lanes beyond the last row get 0, like their q and dout, so they add nothing.
void read_row_values(const QueryPackTask& task, BackwardTile& tile) {
  const Shape& shape = *task.shape;
  for (int64_t w = 0; w < kQueries; ++w) {
    tile.lse[w] = tile.delta[w] = 0;
    if (w >= tile.rows) continue;
    const int64_t row = tile.first_row + w;
    const int64_t offset = row_offset(task.lse.head_stride, task.lse.row_stride, shape.group, row);
    const float lse = static_cast<const float*>(task.lse.data)[offset];
    if (task.delta.data != nullptr) {
      const int64_t at = row_offset(task.delta.head_stride, task.delta.row_stride, shape.group, row);
      tile.delta[w] = static_cast<const float*>(task.delta.data)[at];
    }
    if (lse == -kInfinity) {  // a fully masked row
      tile.visible.lane[w] = {0, 0};
      tile.visible.common = {0, 0};
      continue;
    }
    tile.lse[w] = Probability::stored(lse);
  }
}

// delta = rowsum(dout * out), summed in the same order as dP. If a row sees one key, out is that key's v, and dP -
// delta is exactly 0.
void sum_delta(const QueryPackTask& task, const QueryPackScratch& s, const BackwardTile& tile) {
  const Shape& shape = *task.shape;
  const int64_t width = padded(shape.dim_v), steps = divide_up(shape.dim_v, kPairs);
  read_rows(task.out, shape.group, tile.first_row, tile.rows, shape.dim_v, s.rows, kQueries, width);
  for (int part = 0; part < kPairs; ++part) {  // as bf16, out is split into its leading half and the rest
    pack_queries(s.rows, width, shape.dim_v, s.columns, s.out);
    for (int w = 0; w < kQueries; w += kLanes) {
      Vec sum = zero();
      for (int64_t i = 0; i < steps; ++i)
        sum = multiply_add(load_operands(s.out + i * kQueries + w), load_operands(tile.dout + i * kQueries + w), sum);
      store(tile.delta + w, part == 0 ? sum : add(load(tile.delta + w), sum));
    }
    if (task.out.element == Element::bf16) return;  // the rest is zero
    for (int64_t i = 0; kPairs > 1 && i < kQueries * width; i += kLanes)
      store(s.rows + i, sub(load(s.rows + i), round_to_operand(load(s.rows + i))));
  }
}

template <class Products>
void pack_tile(const QueryPackTask& task, const QueryPackScratch& s, BackwardTile& tile) {
  const Shape& shape = *task.shape;
  tile.first_row = task.first_row;
  tile.rows = smaller(kQueries, shape.group * shape.len_q - task.first_row);
  find_visible(shape, tile.first_row, tile.rows, tile.visible);
  read_row_values(task, tile);
  pack_both_ways(task.q, shape, tile.first_row, tile.rows, shape.dim_qk, s.operands, tile.q, tile.q_rows);
  const int64_t q_operands = steps_of(shape.dim_qk) * kQueries;
  for (int64_t i = 0; shape.sign != 1.0f && i < q_operands; i += kLanes)
    rescale_key_operands(tile.q + i, broadcast(shape.sign), zero());
  pack_both_ways(task.dout, shape, tile.first_row, tile.rows, shape.dim_v, s.operands, tile.dout, tile.dout_rows);
  if (task.sums_delta) Products::delta(task, s, tile);
}

// Packs one tile of queries for the chunks that share it.
template <class Products>
void pack_query_tile(const QueryPackTask& task) {
  Scratch memory{static_cast<char*>(task.scratch), 0}, packed{static_cast<char*>(task.packed), 0};
  const QueryPackScratch s = carve_query_pack(*task.shape, memory);
  pack_tile<Products>(task, s, *take_tile(*task.shape, packed));
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
