// The launch that combines partial gradients: of cuda.any's splits, and of the key tiles that cuda.sm90 splits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/attention/any/parameters.h"
#include "cuda/attention/problem_shape.h"
#include "cuda/runtime/launch.h"
#include "fovea/tensor.h"

namespace fovea::cuda::any {

// Combines the splits of all gradients in one kernel.
class GradientCombine {
 public:
  GradientCombine(const Shape& shape, bool accumulate, ElementKind kind)
      : parameters_{.shape = shape, .accumulate = accumulate, .gradients = {}}, kind_(kind) {}

  // Adds a gradient with the sizes of `like`, unless `partial` is null: then it is not split.
  void add(const TensorView& like, const TensorRef& result, const float* partial, const Split& split, bool is_dkdv) {
    if (partial == nullptr) return;
    parameters_.gradients[parameters_.count++] = {.split = split,
                                                  .is_dkdv = is_dkdv,
                                                  .heads = static_cast<int>(like.sizes[1]),
                                                  .len = static_cast<int>(like.sizes[2]),
                                                  .dim = static_cast<int>(like.sizes[3]),
                                                  .partial = partial,
                                                  .result = result,
                                                  .first_cta = static_cast<unsigned>(ctas_)};
    const std::int64_t rows = like.sizes[0] * like.sizes[1] * like.sizes[2];
    const std::int64_t threads = rows * threads_of_row(static_cast<int>(like.sizes[3]));
    ctas_ += divide_up(threads, kCombineThreads);
  }
  void launch(cudaStream_t stream) {
    if (parameters_.count > 0)
      cuda::launch(combine_gradients_function(kind_), ctas_, kCombineThreads, 0, stream, &parameters_,
                   Dependency::programmatic, Carveout::max_shared);
  }

 private:
  CombineGradientsParameters parameters_;
  ElementKind kind_;
  std::int64_t ctas_ = 0;
};

}  // namespace fovea::cuda::any
