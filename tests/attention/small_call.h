// A small valid forward and backward call that tests spoil in one place, its outputs poisoned.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "fovea/attention.h"

namespace fovea {

inline constexpr float kPoison = -12345.0f;

// A valid forward and backward call over 2 query heads, 1 key head, 3 queries, 4 keys, which each refusal spoils.
struct Call {
  std::int64_t batch = 1;
  std::vector<float> q = std::vector<float>(count(2 * 3 * 8), 0.5f), k = std::vector<float>(count(4 * 8), 0.25f), v = k;
  std::vector<float> dout = q, lse_in = std::vector<float>(count(2 * 3), 1.0f), out_in = q, delta_in = lse_in;
  std::vector<float> out = std::vector<float>(count(2 * 3 * 8), kPoison),
                     lse = std::vector<float>(count(2 * 3), kPoison);
  std::vector<float> dq = out, dk = std::vector<float>(count(4 * 8), kPoison), dv = dk;
  alignas(64) float scratch[1024] = {};
  ForwardTensors forward{.q = contiguous(q.data(), {batch, 2, 3, 8}),
                         .k = contiguous(k.data(), {batch, 1, 4, 8}),
                         .v = contiguous(v.data(), {batch, 1, 4, 8}),
                         .out = contiguous(out.data(), {batch, 2, 3, 8}),
                         .lse = contiguous(lse.data(), {batch, 2, 3, 1})};
  BackwardTensors backward{.q = forward.q,
                           .k = forward.k,
                           .v = forward.v,
                           .out = contiguous(out_in.data(), {batch, 2, 3, 8}),
                           .lse = contiguous(lse_in.data(), {batch, 2, 3, 1}),
                           .dout = contiguous(dout.data(), {batch, 2, 3, 8}),
                           .delta = {},
                           .dq = contiguous(dq.data(), {batch, 2, 3, 8}),
                           .dk = contiguous(dk.data(), {batch, 1, 4, 8}),
                           .dv = contiguous(dv.data(), {batch, 1, 4, 8})};
  AttentionOptions options;

  explicit Call(std::int64_t sequences = 1) : batch(sequences) {}
  Call(const Call&) = delete;  // views point into this object

  // Both calls' q, k and v.
  void q_is(const std::function<void(TensorView&)>& spoil) { spoil(forward.q), spoil(backward.q); }
  void k_is(const std::function<void(TensorView&)>& spoil) { spoil(forward.k), spoil(backward.k); }
  void v_is(const std::function<void(TensorView&)>& spoil) { spoil(forward.v), spoil(backward.v); }

  std::size_t count(std::int64_t elements) const { return static_cast<std::size_t>(batch * elements); }

  bool outputs_untouched() const {
    for (const auto* output : {&out, &lse, &dq, &dk, &dv}) {
      if (!std::all_of(output->begin(), output->end(), [](float value) { return value == kPoison; })) return false;
    }
    return true;
  }
};

}  // namespace fovea
