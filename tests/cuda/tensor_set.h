// The tensors of a problem on the current device, each a `Buffer` with a view `device`, made of sizes, type and seed.
#pragma once

#include "fovea/attention.h"

namespace fovea::cuda {

template <class Buffer>
struct TensorSet {
  AttentionProblem p;
  AttentionOptions options;
  Buffer q, k, v, dout, out, lse, dq, dk, dv;

  explicit TensorSet(const AttentionProblem& problem)
      : p(problem),
        q({p.batch, p.heads_q, p.len_q, p.dim_qk}, p.dtype, 1),
        k({p.batch, p.heads_kv, p.len_k, p.dim_qk}, p.dtype, 2),
        v({p.batch, p.heads_kv, p.len_k, p.dim_v}, p.dtype, 3),
        dout({p.batch, p.heads_q, p.len_q, p.dim_v}, p.dtype, 4),
        out({p.batch, p.heads_q, p.len_q, p.dim_v}, p.dtype, 5),
        lse({p.batch, p.heads_q, p.len_q, 1}, DType::fp32, 6),
        dq({p.batch, p.heads_q, p.len_q, p.dim_qk}, p.dtype, 7),
        dk({p.batch, p.heads_kv, p.len_k, p.dim_qk}, p.dtype, 8),
        dv({p.batch, p.heads_kv, p.len_k, p.dim_v}, p.dtype, 9) {
    p.device = {DeviceKind::cuda, 0};
    options.mask = p.mask;
    options.scale = p.scale;
  }
  ForwardTensors forward() {
    return {.q = q.device, .k = k.device, .v = v.device, .out = out.device, .lse = lse.device};
  }
  BackwardTensors backward() {
    BackwardTensors t{.q = q.device,
                      .k = k.device,
                      .v = v.device,
                      .out = out.device,
                      .lse = lse.device,
                      .dout = dout.device,
                      .dq = dq.device,
                      .dk = dk.device,
                      .dv = dv.device};
    if (!p.wants_dq) t.dq = {};
    if (!p.wants_dk) t.dk = {};
    if (!p.wants_dv) t.dv = {};
    return t;
  }
};

}  // namespace fovea::cuda
