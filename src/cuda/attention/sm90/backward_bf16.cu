// Instances of backward.cuh for bf16.
#include "cuda/attention/sm90/backward.cuh"
#include "cuda/attention/sm90/backward_times.h"
#include "cuda/attention/sm90/instances.h"

namespace fovea::cuda::sm90 {

std::span<const BackwardInstance> backward_bf16() {
  static const BackwardInstance all[] = {backward_instance<__nv_bfloat16, 64>(kBackwardTimes64),
                                         backward_instance<__nv_bfloat16, 128>(kBackwardTimes128)};
  return all;
}

}  // namespace fovea::cuda::sm90
