// Instances of backward_dq.cuh for fp16.
#include "cuda/attention/any/backward_dq.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> backward_dq_fp16() {
  static const KernelInstance all[] = {backward_dq_instance<__half, HalfDq32>(),  backward_dq_instance<__half, Dq32>(),
                                       backward_dq_instance<__half, HalfDq64>(),  backward_dq_instance<__half, Dq64>(),
                                       backward_dq_instance<__half, HalfDq128>(), backward_dq_instance<__half, Dq128>(),
                                       backward_dq_instance<__half, Dq256>()};
  return all;
}

}  // namespace fovea::cuda::any
