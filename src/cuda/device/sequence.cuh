// The rows of one (batch, head), and the offset of a row in a tensor.
#pragma once

#include "cuda/device/tensor_ref.h"

namespace fovea::cuda {

// `len` rows of `dim` elements. `whole_chunks`: every row can be copied in whole 16-byte chunks.
template <class Element>
struct Rows {
  const Element* data;
  std::int64_t stride;
  int len, dim;
  bool whole_chunks;
};

// Elements from the start of the tensor to the start of a row.
template <class Pointer>
__device__ __forceinline__ std::int64_t row_offset(const BasicTensorRef<Pointer>& t, std::int64_t batch,
                                                   std::int64_t head, std::int64_t row) {
  return batch * t.batch_stride + head * t.head_stride + row * t.row_stride;
}

template <class Element>
__device__ __forceinline__ Rows<Element> rows_of(const ConstTensorRef& t, int batch, int head, int len, int dim) {
  return {static_cast<const Element*>(t.data) + batch * t.batch_stride + head * t.head_stride, t.row_stride, len, dim,
          t.aligned && dim % (16 / static_cast<int>(sizeof(Element))) == 0};
}

}  // namespace fovea::cuda
