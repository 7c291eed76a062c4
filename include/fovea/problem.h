// The problem of an attention call: sizes, types, mask, scale. No pointers, no choice of kernel; of strides only what
// decides the implementation.
#pragma once

#include <cstdint>
#include <string>

#include "fovea/export.h"
#include "fovea/mask.h"
#include "fovea/tensor.h"

namespace fovea {

enum class Pass : std::uint8_t { forward, backward };

// The properties of a call that decide its implementation. Build one with describe() (attention.h) or by hand.
struct AttentionProblem {
  Pass pass = Pass::forward;
  std::int64_t batch = 1;
  std::int64_t heads_q = 1;
  std::int64_t heads_kv = 1;  // divides heads_q
  std::int64_t len_q = 1;
  std::int64_t len_k = 1;
  std::int64_t dim_qk = 1;
  std::int64_t dim_v = 1;
  DType dtype = DType::fp32;         // of q, k, v, dout
  DType result_dtype = DType::fp32;  // of out, or of the gradients: dtype or fp32
  Mask mask = Mask::none;
  double scale = 1.0;  // multiplies q.k
  Device device{};
  bool reproducible = true;  // the same bits on every run and for any number of threads
  bool saved_state = false;  // forward writes, or backward reads, saved state
  bool accumulate = false;   // backward adds to fp32 gradients instead of overwriting them
  bool wants_dq = true, wants_dk = true, wants_dv = true;
  // On CUDA, of 16-bit q, k, v or dout: some stride is 0, or 2^40 bytes or more, or rows do not all start at multiples
  // of 16 bytes. TMA, the hardware that copies whole tiles, cannot read such tensors. describe() sets it.
  bool unaligned = false;

  bool operator==(const AttentionProblem&) const = default;
};

// Query row i sees the keys j with max(0, i + begin) <= j < min(len_k, i + end).
struct KeyWindow {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
FOVEA_API KeyWindow key_window(const AttentionProblem& problem);

// Visible (query, key) pairs of one (batch, head).
FOVEA_API std::int64_t visible_pairs(const AttentionProblem& problem);

// Floating-point operations of the formulas, over visible pairs only: two products forward (QK^T, PV), five backward
// (QK^T again, dP, dV, dK, dQ). Which gradients are wanted changes nothing.
FOVEA_API double flops(const AttentionProblem& problem);

// Bytes if every input is read once and every output written once, lse included; accumulated gradients are read too.
FOVEA_API double bytes(const AttentionProblem& problem);

}  // namespace fovea
