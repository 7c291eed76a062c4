// mla: x becomes a small latent for q and another for k and v, which are then projected up to all heads. A shared
// rotary key lies beside the latent of k and v.
#include "layers/projections.h"

namespace fovea::layers {

Steps latent_steps(const LayerProblem& p) {
  return {{Slot::q_down, Source::x, false, p.width, p.latent_q},
          {Slot::kv_down, p.cross ? Source::x_kv : Source::x, true, p.width_kv, plus(p.latent_kv, p.dim_shared)},
          {Slot::q, Source::q_latent, false, p.latent_q, columns_of(p.heads_q, p.dim_qk)},
          {Slot::k, Source::kv_latent, true, p.latent_kv, columns_of(p.heads_kv, p.dim_qk - p.dim_shared)},
          {Slot::v, Source::kv_latent, true, p.latent_kv, columns_of(p.heads_kv, p.dim_v)}};
}

}  // namespace fovea::layers
