// mla: x becomes a small latent for q and another for k and v, which are then projected up to all heads.
#include "layers/projections.h"

namespace fovea::layers {

Steps latent_steps(const LayerProblem& p) {
  return {{Slot::q_down, Source::x, false, p.width, p.latent_q},
          {Slot::kv_down, p.cross ? Source::x_kv : Source::x, true, p.width_kv, p.latent_kv},
          {Slot::q, Source::q_latent, false, p.latent_q, columns_of(p.heads_q, p.dim_qk)},
          {Slot::k, Source::kv_latent, true, p.latent_kv, columns_of(p.heads_kv, p.dim_qk)},
          {Slot::v, Source::kv_latent, true, p.latent_kv, columns_of(p.heads_kv, p.dim_v)}};
}

}  // namespace fovea::layers
