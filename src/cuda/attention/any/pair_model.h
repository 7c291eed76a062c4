// The two gradient kernels of a backward call, which run side by side: how each is cut, chosen together.
#pragma once

#include <utility>
#include <vector>

#include "cuda/attention/any/split_model.h"

namespace fovea::cuda::any {

// A kernel with one of its cuts.
struct TileCut {
  const KernelInstance* kernel = nullptr;
  Load load;
  Cut cut;
};

// One of each, such that both and the joining of their parts take least by the model. Of fp32.
std::pair<TileCut, TileCut> choose_pair(const std::vector<TileCut>& keys, const std::vector<TileCut>& queries,
                                        int device);

}  // namespace fovea::cuda::any
