// Backward on Hopper for heads of more than 128 columns, in two passes: dK and dV, then dQ. Both compute S and dP, so
// there are seven products; no sum leaves a thread block. Schedule: docs/kernels/sm90_backward.md.
#pragma once

#include "cuda/attention/sm90/backward_preprocess.cuh"
#include "cuda/attention/sm90/two_pass_dkdv.cuh"
#include "cuda/attention/sm90/two_pass_dq.cuh"

namespace fovea::cuda::sm90 {

template <class Element, int kDimQk, int kDimV>
TwoPassInstance two_pass_instance() {
  using Tile = TwoPassTile<Element, kDimQk, kDimV>;
  return {.dkdv = reinterpret_cast<const void*>(&two_pass_dkdv<Tile>),
          .dq = reinterpret_cast<const void*>(&two_pass_dq<Tile>),
          .preprocess = reinterpret_cast<const void*>(&backward_preprocess<Element, kDimV>),
          .dim_qk = kDimQk,
          .dim_v = kDimV,
          .dkdv_shared_bytes = static_cast<int>(sizeof(DkDvShared<Tile>)),
          .dq_shared_bytes = static_cast<int>(sizeof(DqShared<Tile>))};
}

}  // namespace fovea::cuda::sm90
