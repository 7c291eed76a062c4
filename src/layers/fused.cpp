// mha_fused: one product makes q, k and v, side by side in every row.
#include "layers/projections.h"

namespace fovea::layers {

Steps fused_steps(const LayerProblem& p) {
  return {{Slot::qkv, Source::x, false, p.width, columns_of(3, columns_of(p.heads_q, p.dim_qk))}};
}

}  // namespace fovea::layers
