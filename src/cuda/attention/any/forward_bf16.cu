// Instances of forward.cuh for bf16.
#include "cuda/attention/any/forward.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> forward_bf16() {
  static const KernelInstance all[] = {
      forward_instance<__nv_bfloat16, FewRows32>(),      forward_instance<__nv_bfloat16, HalfForward32>(),
      forward_instance<__nv_bfloat16, Forward32>(),      forward_instance<__nv_bfloat16, FewRows64Large>(),
      forward_instance<__nv_bfloat16, FewRows64>(),      forward_instance<__nv_bfloat16, HalfForward64>(),
      forward_instance<__nv_bfloat16, Forward64>(),      forward_instance<__nv_bfloat16, FewRows128>(),
      forward_instance<__nv_bfloat16, HalfForward128>(), forward_instance<__nv_bfloat16, Forward128>(),
      forward_instance<__nv_bfloat16, Forward256>()};
  return all;
}

}  // namespace fovea::cuda::any
