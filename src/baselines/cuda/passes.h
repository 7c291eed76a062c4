// Passes and copies as the calls enqueue them: shapes, strides and types of a problem turned into launches.
#pragma once

#include "baselines/cuda/call.h"
#include "baselines/cuda/pieces.h"
#include "baselines/cuda/products.h"
#include "baselines/cuda/row_passes.h"

namespace fovea::cuda::baselines {

// The threads of a row: a power of two, at least a warp; all columns stay in registers if 512 threads can hold them.
int threads_of_row(std::int64_t len_k, Step step);

// As the passes see matrices [len_q, len_k] of neighbouring heads.
RowMatrix row_matrix(const Matrices& pairs);

// A pass over a piece's scores, its result in place. `factor` multiplies what the matrix holds. `masked`: the pass
// knows which keys a row sees and reads no others.
RowPass pass_over(const Piece& piece, const Matrices& scores, bool masked, double factor);

// `element` and `to` as row_pass_kernel has them.
void enqueue(const Call& call, Step step, RowPass pass, DType element, DType to);

// delta = each row's sum of dout * out, or what was given, as dense floats.
void enqueue_delta(const Call& call, const TensorView& out, const TensorView& dout, const TensorView& given,
                   float* delta);

TensorRef ref(const TensorView& view);

// A tensor that products read: the view itself or, if its rows overlap, its copy in `scratch`.
Matrices operand(const Call& call, const TensorView& view, void* scratch);

// One that products write: the view itself, since validation lets no output's rows overlap.
Matrices result(const TensorView& view);

// Dense [batch, heads, len, dim] memory.
Matrices dense(const void* data, DType dtype, const Sizes& sizes);

// Dense [batch, heads_q, len_q, len_k] memory.
Matrices pairs(const AttentionProblem& problem, const void* data, DType dtype);

// A piece's scores: in `scratch`, or where their result will stand.
Matrices scores_of(const Piece& piece, float* scratch, const Matrices& result);

// A piece's part of the tensor [batch, heads_q, len_q, 1]; no data if the view has none.
TensorRef lse_of(const Piece& piece, const TensorView& lse);

// to = from, or += if `accumulate`.
void copy(const Call& call, const Matrices& from, const MutableTensorView& to, bool accumulate);
void fill(const Call& call, const MutableTensorView& to, float value);

}  // namespace fovea::cuda::baselines
