// Instances of forward.cuh for bf16.
#include "cuda/attention/sm90/forward.cuh"
#include "cuda/attention/sm90/instances.h"
#include "cuda/attention/sm90/tiles.h"

namespace fovea::cuda::sm90 {

std::span<const ForwardInstance> forward_bf16() {
  static const ForwardInstance all[] = {
      forward_instance<__nv_bfloat16, Forward64>(),
      forward_instance<__nv_bfloat16, Forward64ShortSequences>(),
      forward_instance<__nv_bfloat16, Forward64OneWarpgroup>(),
      forward_instance<__nv_bfloat16, Forward128>(),
      forward_instance<__nv_bfloat16, Forward128OneWarpgroup>(),
      forward_instance<__nv_bfloat16, Forward128OneWarpgroupShortSequences>(),
      forward_instance<__nv_bfloat16, Forward192With128>(),
      forward_instance<__nv_bfloat16, Forward192>(),
      forward_instance<__nv_bfloat16, Forward256>(),
      forward_instance<__nv_bfloat16, Forward256ShortSequences>(),
      forward_instance<__nv_bfloat16, Forward256OneWarpgroup>(),
  };
  return all;
}

}  // namespace fovea::cuda::sm90
