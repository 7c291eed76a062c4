// Which neighbouring dimensions of a tensor have one stride and so fold into one.
#include "linear/matrix_view.h"

namespace fovea::linear {

MatrixView::MatrixView(const TensorView& t)
    : data(t.data),
      dtype(t.dtype),
      batches(t.sizes[0]),
      heads(t.sizes[1]),
      len(t.sizes[2]),
      dim(t.sizes[3]),
      batch(t.strides[0]),
      head(t.strides[1]),
      row(len == 1 ? batch : t.strides[2]),
      rows_fold(batches == 1 || len == 1 || batch == len * row),
      columns_fold(heads == 1 || head == dim) {
  if (batches == 1 && len == 1) row = columns();
}

MutableTensorView dense_copy(const TensorView& t, void* data) {
  const std::int64_t columns = t.sizes[1] * t.sizes[3];
  return {data, t.dtype, t.sizes, {t.sizes[2] * columns, t.sizes[3], columns, 1}, t.device};
}

}  // namespace fovea::linear
