// Instances of backward_queries.cuh for fp32.
#include "cuda/attention/any/backward_queries.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> backward_queries_fp32() {
  static const KernelInstance all[] = {backward_queries_instance<float, BackwardFp32_32>(),
                                       backward_queries_instance<float, BackwardFp32_64>(),
                                       backward_queries_instance<float, BackwardFp32_128Largest>(),
                                       backward_queries_instance<float, BackwardFp32_128Larger>(),
                                       backward_queries_instance<float, BackwardFp32_128Large>(),
                                       backward_queries_instance<float, BackwardFp32_128>(),
                                       backward_queries_instance<float, BackwardFp32_256>()};
  return all;
}

}  // namespace fovea::cuda::any
