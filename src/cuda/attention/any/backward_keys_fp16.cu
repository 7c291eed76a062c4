// Instances of backward_keys.cuh for fp16.
#include "cuda/attention/any/backward_keys.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> backward_keys_fp16() {
  static const KernelInstance all[] = {
      backward_keys_instance<__half, HalfKeys32>(), backward_keys_instance<__half, Keys32>(),
      backward_keys_instance<__half, HalfKeys64>(), backward_keys_instance<__half, Keys64>(),
      backward_keys_instance<__half, Keys128>(),    backward_keys_instance<__half, Keys256>()};
  return all;
}

}  // namespace fovea::cuda::any
