// Fills the table of a target's functions.
#pragma once

#include "cpu/kernels/adamw.inl.h"
#include "cpu/kernels/backward.inl.h"
#include "cpu/kernels/few_queries.inl.h"
#include "cpu/kernels/forward.inl.h"
#include "cpu/kernels/product.inl.h"
#include "cpu/kernels/reduce_dq.inl.h"
#include "cpu/kernels/rms_norm.inl.h"
#include "cpu/kernels/swiglu.inl.h"
#include "cpu/kernels/tokens.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

int64_t packed_k_bytes(const Shape& shape) { return operands_of_k(shape) * static_cast<int64_t>(sizeof(Operand)); }
int64_t packed_v_bytes(const Shape& shape) { return operands_of_v(shape) * static_cast<int64_t>(sizeof(Operand)); }

int64_t forward_scratch_bytes(const Shape& shape, int64_t rows, bool packs_itself) {
  ForwardScratch unused;
  return carve(shape, rows, packs_itself, nullptr, unused);
}

int64_t query_pack_scratch_bytes(const Shape& shape) {
  Scratch memory{nullptr, 0};
  carve_query_pack(shape, memory);
  return memory.used;
}

template <class Products>
int64_t backward_scratch_bytes(const Shape& shape, int64_t keys, bool own_tiles, bool own_dq) {
  BackwardScratch unused;
  return carve<Products>(shape, keys, own_tiles, own_dq, nullptr, unused);
}

int64_t reduce_scratch_bytes(const Shape& shape) {
  Scratch memory{nullptr, 0};
  carve_reduce(shape, memory);
  return memory.used;
}

void pack(const PackTask& task) {
  pack_block(*task.shape, task.k, task.v, task.first_key, static_cast<Operand*>(task.packed_k),
             static_cast<Operand*>(task.packed_v));
}

constexpr Kernels table() {
  Kernels t{};
  t.lanes = kLanes;
  t.query_tile = kQueries;
  t.key_block = kKeyBlock;
  t.backward_block = kBackwardKeys;
  t.tile_rows = kTileRows;
  t.bf16_dot = kBf16Dot;
  t.packed_k_bytes = packed_k_bytes;
  t.packed_v_bytes = packed_v_bytes;
  t.forward_scratch_bytes = forward_scratch_bytes;
  t.pack = pack;
  t.forward = forward<PlainScore>;
  t.few_rows = kFewRows;
  t.few_chunk_step = kFewChunkStep;
  t.few_partial_bytes = few_partial_bytes;
  t.few_scratch_bytes = few_scratch_bytes;
  t.few_queries = few_queries<PlainScore>;
  t.combine_partials = combine_partials;
  t.chunk_step = kChunkStep;
  t.backward_tile_bytes = backward_tile_bytes;
  t.dq_tile_floats = dq_tile_floats;
  t.query_pack_scratch_bytes = query_pack_scratch_bytes;
  t.backward_scratch_bytes = backward_scratch_bytes<VectorProducts>;
  t.reduce_scratch_bytes = reduce_scratch_bytes;
  t.pack_query_tile = pack_query_tile<VectorProducts>;
  t.backward = backward<PlainScore>;
  t.reduce_dq = reduce_dq;
  t.product_rows = kPanelRows;
  t.product_columns = kPanelColumns;
  t.product_pairs = kPairs;
  t.product_depth = kMostSteps * kPairs;
  t.pack_panels = pack_panels;
  t.product = product;
  t.convert = convert;
  t.sum_columns = sum_columns;
  t.model = {.rms_norm = rms_norm,
             .rms_norm_backward = rms_norm_backward,
             .swiglu = swiglu,
             .swiglu_backward = swiglu_backward,
             .gather = gather,
             .scatter = scatter,
             .cross_entropy = cross_entropy,
             .sum_of_squares = sum_of_squares,
             .adamw = adamw};
  return t;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
