// Instances of forward.cuh for fp32.
#include "cuda/attention/any/forward.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> forward_fp32() {
  static const KernelInstance all[] = {
      forward_instance<float, FewRowsFp32_32>(),       forward_instance<float, ForwardFp32_32>(),
      forward_instance<float, FewRowsFp32_64>(),       forward_instance<float, ForwardFp32_64>(),
      forward_instance<float, ForwardFp32_128Large>(), forward_instance<float, ForwardFp32_128>(),
      forward_instance<float, ForwardFp32_256Large>(), forward_instance<float, ForwardFp32_256>()};
  return all;
}

}  // namespace fovea::cuda::any
