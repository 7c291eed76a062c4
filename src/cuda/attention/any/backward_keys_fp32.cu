// Instances of backward_keys.cuh for fp32.
#include "cuda/attention/any/backward_keys.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

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
