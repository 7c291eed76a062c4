// Instances of forward.cuh for fp16.
#include "cuda/attention/sm90/forward.cuh"
#include "cuda/attention/sm90/instances.h"
#include "cuda/attention/sm90/tiles.h"

namespace fovea::cuda::sm90 {

std::span<const ForwardInstance> forward_fp16() {
  static const ForwardInstance all[] = {
      forward_instance<__half, Forward64>(),
      forward_instance<__half, Forward64ShortSequences>(),
      forward_instance<__half, Forward64OneWarpgroup>(),
      forward_instance<__half, Forward128>(),
      forward_instance<__half, Forward128OneWarpgroup>(),
      forward_instance<__half, Forward128OneWarpgroupShortSequences>(),
      forward_instance<__half, Forward192With128>(),
      forward_instance<__half, Forward192>(),
      forward_instance<__half, Forward256>(),
      forward_instance<__half, Forward256ShortSequences>(),
      forward_instance<__half, Forward256OneWarpgroup>(),
  };
  return all;
}

}  // namespace fovea::cuda::sm90
