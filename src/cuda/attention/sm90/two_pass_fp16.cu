// Instances of the two-pass backward for fp16.
#include "cuda/attention/sm90/instances.h"
#include "cuda/attention/sm90/two_pass.cuh"

namespace fovea::cuda::sm90 {

std::span<const TwoPassInstance> two_pass_fp16() {
  static const TwoPassInstance all[] = {two_pass_instance<__half, 192, 128>(), two_pass_instance<__half, 192, 192>(),
                                        two_pass_instance<__half, 256, 256>()};
  return all;
}

}  // namespace fovea::cuda::sm90
