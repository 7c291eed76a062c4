// The rows of one (batch, head). Kernels turn (batch, head) into an address only here.
#pragma once

#include "cuda/device/tensor_ref.h"

namespace fovea::cuda {

// `len` rows of `dim` elements. `vector`: every row can be copied in whole 16-byte chunks.
template <class Element>
struct Rows {
  Element* data;
  std::int64_t stride;
  int len, dim;
  bool vector;
};

template <class Element>
__device__ __forceinline__ Rows<Element> rows_of(const TensorRef& t, int batch, int head, int len, int dim) {
  return {static_cast<Element*>(t.data) + batch * t.batch + head * t.head, t.row, len, dim,
          t.vector && dim % (16 / static_cast<int>(sizeof(Element))) == 0};
}

}  // namespace fovea::cuda
