// Instances of backward_queries.cuh for fp16.
#include "cuda/attention/any/backward_queries.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> backward_queries_fp16() {
  static const KernelInstance all[] = {
      backward_queries_instance<__half, HalfQueries32>(),  backward_queries_instance<__half, Queries32>(),
      backward_queries_instance<__half, HalfQueries64>(),  backward_queries_instance<__half, Queries64>(),
      backward_queries_instance<__half, HalfQueries128>(), backward_queries_instance<__half, Queries128>(),
      backward_queries_instance<__half, Queries256>()};
  return all;
}

}  // namespace fovea::cuda::any
