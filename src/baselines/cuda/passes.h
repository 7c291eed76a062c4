// Enqueues passes and copies: turns shapes, strides and types of a problem into launches.
#pragma once

#include <type_traits>

#include "baselines/cuda/call.h"
#include "baselines/cuda/pieces.h"
#include "baselines/cuda/products.h"
#include "baselines/cuda/row_passes.h"
#include "cuda/runtime/tensor_refs.h"

namespace fovea::cuda::baselines {

// The number of threads per row: a power of two, at least a warp. All columns stay in registers if 512 threads can hold
// them.
int threads_of_row(std::int64_t len_k, Step step);

// The passes' form of matrices [len_q, len_k] of neighbouring heads.
template <class Pointer>
BasicRowMatrix<Pointer> row_matrix(const BasicMatrices<Pointer>& pairs) {
  return {pairs.data, pairs.head_stride, pairs.row_stride};
}

// A pass over a piece's scores with its result in place. `factor` multiplies the matrix. `masked`: the pass reads only
// the keys that a row sees.
RowPass pass_over(const Piece& piece, const Matrices& scores, bool masked, double factor);

// `element` and `to` have the meaning of row_pass_kernel's.
void enqueue(const Call& call, Step step, RowPass pass, DType element, DType to);

// Writes delta = rowsum(dout * out), or the given one, as dense floats.
void enqueue_delta(const Call& call, const TensorView& out, const TensorView& dout, const TensorView& given,
                   float* delta);

// A tensor that products read: the view itself, or a copy in `scratch` if its rows overlap.
ConstMatrices operand(const Call& call, const TensorView& view, void* scratch);

// A tensor that products write: the view itself, because rows of a validated output do not overlap.
Matrices result(const MutableTensorView& view);

// Dense [batch, heads, len, dim] memory.
Matrices dense(void* data, DType dtype, const Sizes& sizes);

// Dense [batch, heads_q, len_q, len_k] memory.
Matrices pairs(const AttentionProblem& problem, void* data, DType dtype);

// A piece's scores: in `scratch`, or in the memory of their result.
Matrices scores_of(const Piece& piece, float* scratch, const Matrices& result);

// A piece's part of the tensor [batch, heads_q, len_q, 1]; no data if the view has none.
template <class Pointer>
BasicTensorRef<Pointer> lse_of(const Piece& piece, const BasicTensorView<Pointer>& lse) {
  if (!lse) return {};
  using Float = std::conditional_t<std::is_same_v<Pointer, void*>, float, const float>;
  BasicTensorRef<Pointer> first = ref(lse);
  first.data = static_cast<Float*>(first.data) + piece.batch * first.batch_stride + piece.head_q * first.head_stride +
               piece.query * first.row_stride;
  return first;
}

// to = from, or += if `accumulate`.
void copy(const Call& call, const ConstMatrices& from, const MutableTensorView& to, bool accumulate);
void fill(const Call& call, const MutableTensorView& to, float value);

}  // namespace fovea::cuda::baselines
