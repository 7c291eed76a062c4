// Instances of forward.cuh for fp16.
#include "cuda/attention/any/forward.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> forward_fp16() {
  static const KernelInstance all[] = {
      forward_instance<__half, FewRows32>(),      forward_instance<__half, HalfForward32>(),
      forward_instance<__half, Forward32>(),      forward_instance<__half, FewRows64Large>(),
      forward_instance<__half, FewRows64>(),      forward_instance<__half, HalfForward64>(),
      forward_instance<__half, Forward64>(),      forward_instance<__half, FewRows128>(),
      forward_instance<__half, HalfForward128>(), forward_instance<__half, Forward128>(),
      forward_instance<__half, Forward256>()};
  return all;
}

}  // namespace fovea::cuda::any
