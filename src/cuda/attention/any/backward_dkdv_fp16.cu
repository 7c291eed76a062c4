// Instances of backward_dkdv.cuh for fp16.
#include "cuda/attention/any/backward_dkdv.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> backward_dkdv_fp16() {
  static const KernelInstance all[] = {
      backward_dkdv_instance<__half, HalfDkDv32>(), backward_dkdv_instance<__half, DkDv32>(),
      backward_dkdv_instance<__half, HalfDkDv64>(), backward_dkdv_instance<__half, DkDv64>(),
      backward_dkdv_instance<__half, DkDv128>(),    backward_dkdv_instance<__half, DkDv256>()};
  return all;
}

}  // namespace fovea::cuda::any
