// mha, gqa and mqa: a projection each for q, k and v. They differ only in the number of key heads.
#include "layers/projections.h"

namespace fovea::layers {

Steps separate_steps(const LayerProblem& p) {
  const Source keys = p.cross ? Source::x_kv : Source::x;
  return {{Slot::q, Source::x, false, p.width, columns_of(p.heads_q, p.dim_qk)},
          {Slot::k, keys, true, p.width_kv, columns_of(p.heads_kv, p.dim_qk)},
          {Slot::v, keys, true, p.width_kv, columns_of(p.heads_kv, p.dim_v)}};
}

}  // namespace fovea::layers
