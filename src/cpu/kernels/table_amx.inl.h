// Fills the table of a target with tile registers: forward and backward differ from the other targets'.
#pragma once

#include "cpu/kernels/backward_amx.inl.h"
#include "cpu/kernels/forward_amx.inl.h"
#include "cpu/kernels/table.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

int64_t amx_packed_k_bytes(const Shape& shape) {
  return amx_operands_of_k(shape) * static_cast<int64_t>(sizeof(Operand));
}
int64_t amx_packed_v_bytes(const Shape& shape) {
  return amx_operands_of_v(shape) * static_cast<int64_t>(sizeof(Operand));
}

int64_t amx_forward_scratch_bytes(const Shape& shape, int64_t rows, bool packs_itself) {
  AmxForwardScratch unused;
  return carve(shape, rows, packs_itself, nullptr, unused);
}

constexpr Kernels amx_table() {
  Kernels t = table();
  t.tile_registers = true;
  t.packed_k_bytes = amx_packed_k_bytes;
  t.packed_v_bytes = amx_packed_v_bytes;
  t.forward_scratch_bytes = amx_forward_scratch_bytes;
  t.pack = amx_pack;
  t.forward = amx_forward<PlainScore>;
  t.chunk_step = kTileStep;
  t.backward_scratch_bytes = backward_scratch_bytes<AmxProducts>;
  t.pack_query_tile = amx_pack_query_tile;
  t.backward = amx_backward<PlainScore>;
  return t;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
