// Instances of backward_dkdv.cuh for bf16.
#include "cuda/attention/any/backward_dkdv.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> backward_dkdv_bf16() {
  static const KernelInstance all[] = {
      backward_dkdv_instance<__nv_bfloat16, HalfDkDv32>(), backward_dkdv_instance<__nv_bfloat16, DkDv32>(),
      backward_dkdv_instance<__nv_bfloat16, HalfDkDv64>(), backward_dkdv_instance<__nv_bfloat16, DkDv64>(),
      backward_dkdv_instance<__nv_bfloat16, DkDv128>(),    backward_dkdv_instance<__nv_bfloat16, DkDv256>()};
  return all;
}

}  // namespace fovea::cuda::any
