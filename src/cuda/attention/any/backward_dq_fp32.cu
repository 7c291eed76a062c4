// Instances of backward_dq.cuh for fp32.
#include "cuda/attention/any/backward_dq.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> backward_dq_fp32() {
  static const KernelInstance all[] = {
      backward_dq_instance<float, BackwardFp32_32>(),         backward_dq_instance<float, BackwardFp32_64>(),
      backward_dq_instance<float, BackwardFp32_128Largest>(), backward_dq_instance<float, BackwardFp32_128Larger>(),
      backward_dq_instance<float, BackwardFp32_128Large>(),   backward_dq_instance<float, BackwardFp32_128>(),
      backward_dq_instance<float, BackwardFp32_256>()};
  return all;
}

}  // namespace fovea::cuda::any
