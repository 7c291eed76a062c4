// Instances of backward_queries.cuh for bf16.
#include "cuda/attention/any/backward_queries.cuh"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/tiles.h"

namespace fovea::cuda::any {

std::span<const KernelInstance> backward_queries_bf16() {
  static const KernelInstance all[] = {backward_queries_instance<__nv_bfloat16, HalfQueries32>(),
                                       backward_queries_instance<__nv_bfloat16, Queries32>(),
                                       backward_queries_instance<__nv_bfloat16, HalfQueries64>(),
                                       backward_queries_instance<__nv_bfloat16, Queries64>(),
                                       backward_queries_instance<__nv_bfloat16, HalfQueries128>(),
                                       backward_queries_instance<__nv_bfloat16, Queries128>(),
                                       backward_queries_instance<__nv_bfloat16, Queries256>()};
  return all;
}

}  // namespace fovea::cuda::any
