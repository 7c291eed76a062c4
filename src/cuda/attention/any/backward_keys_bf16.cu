// Instances of backward_keys.cuh for bf16.
#include "cuda/attention/any/backward_keys.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> backward_keys_bf16() {
  static const KernelInstance all[] = {
      backward_keys_instance<__nv_bfloat16, HalfKeys32>(), backward_keys_instance<__nv_bfloat16, Keys32>(),
      backward_keys_instance<__nv_bfloat16, HalfKeys64>(), backward_keys_instance<__nv_bfloat16, Keys64>(),
      backward_keys_instance<__nv_bfloat16, Keys128>(),    backward_keys_instance<__nv_bfloat16, Keys256>()};
  return all;
}

}  // namespace fovea::cuda::any
