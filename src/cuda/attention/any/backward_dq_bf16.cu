// Instances of backward_dq.cuh for bf16.
#include "cuda/attention/any/backward_dq.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> backward_dq_bf16() {
  static const KernelInstance all[] = {
      backward_dq_instance<__nv_bfloat16, HalfDq32>(),  backward_dq_instance<__nv_bfloat16, Dq32>(),
      backward_dq_instance<__nv_bfloat16, HalfDq64>(),  backward_dq_instance<__nv_bfloat16, Dq64>(),
      backward_dq_instance<__nv_bfloat16, HalfDq128>(), backward_dq_instance<__nv_bfloat16, Dq128>(),
      backward_dq_instance<__nv_bfloat16, Dq256>()};
  return all;
}

}  // namespace fovea::cuda::any
