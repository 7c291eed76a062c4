// Instances of backward_keys.cuh for fp32.
#include "cuda/any/backward_keys.cuh"
#include "cuda/any/instances.h"
#include "cuda/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> backward_keys_fp32() {
  static const KernelInstance all[] = {
      backward_keys_instance<float, BackwardFp32_32>(),         backward_keys_instance<float, BackwardFp32_64>(),
      backward_keys_instance<float, BackwardFp32_128Largest>(), backward_keys_instance<float, BackwardFp32_128Larger>(),
      backward_keys_instance<float, BackwardFp32_128Large>(),   backward_keys_instance<float, BackwardFp32_128>(),
      backward_keys_instance<float, BackwardFp32_256>()};
  return all;
}

}  // namespace fovea::cuda::any
