// Makes the parameters of the passes and launches them: threads per row, vector or single loads, strides.
#include "baselines/cuda/passes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "baselines/cuda/short_gradient.h"
#include "baselines/cuda/short_softmax.h"
#include "baselines/cuda/tensor_passes.h"
#include "cuda/runtime/launch.h"

namespace fovea::cuda::baselines {
namespace {

template <class Pointer>
BasicTensorRef<Pointer> ref_of(const BasicMatrices<Pointer>& m) {
  return {m.data, m.batch_stride, m.head_stride, m.row_stride, kind_of(m.dtype)};
}

template <class Pointer>
BasicMatrices<Pointer> matrices_of(const BasicTensorView<Pointer>& view) {
  const std::int64_t row = view.sizes[2] > 1 ? view.strides[2] : view.sizes[3];
  return {view.data, view.dtype, view.strides[0], view.strides[1], row};
}

// Whether rows of `type` can be accessed as aligned vectors of four.
template <class Pointer>
bool is_vector(const BasicRowMatrix<Pointer>& m, DType type) {
  return reinterpret_cast<std::uintptr_t>(m.data) % static_cast<std::uintptr_t>(4 * size_of(type)) == 0 &&
         m.row_stride % 4 == 0 && m.head_stride % 4 == 0;
}

template <class Parameters>
void launch_rows(const void* kernel, std::int64_t rows, int rows_per_cta, int threads, const Call& call,
                 const Parameters& parameters, Dependency dependency = Dependency::full) {
  constexpr std::int64_t kMaxGrid = 0x7fffffff;
  launch(kernel, std::min((rows + rows_per_cta - 1) / rows_per_cta, kMaxGrid), threads, 0,
         static_cast<cudaStream_t>(call.stream), &parameters, dependency);
}

void launch_copy(const Call& call, const Sizes& sizes, TensorCopy pass) {
  pass.rows = sizes[0] * sizes[1] * sizes[2];
  pass.heads = static_cast<int>(sizes[1]);
  pass.len = static_cast<int>(sizes[2]);
  pass.dim = static_cast<int>(sizes[3]);
  launch_rows(tensor_copy_kernel(), pass.rows, kTensorPassThreads / 32, kTensorPassThreads, call, pass);
}

// The lse of all (batch, head) at one stride, so that kernels need no division by the heads.
RowMatrix lse_of_sequences(const RowPass& pass) {
  const TensorRef& lse = pass.lse;
  return {lse.data, pass.heads_q == 1 ? lse.batch_stride : lse.head_stride, lse.row_stride};
}

template <class Pointer>
bool fits_32_bits(const BasicRowMatrix<Pointer>& m) {
  constexpr std::int64_t kMost = std::numeric_limits<unsigned>::max();
  return std::min(m.head_stride, m.row_stride) >= 0 && std::max(m.head_stride, m.row_stride) <= kMost;
}

// Whether the kernels for short rows can run the pass, if its rows are vectors.
template <class... Matrices>
bool is_short(const RowPass& pass, const Matrices&... matrices) {
  return (fits_32_bits(matrices) && ...) && pass.len_k <= kShortRow && pass.rows <= std::numeric_limits<int>::max();
}

bool is_short_softmax(const RowPass& pass) {
  const RowMatrix lse = lse_of_sequences(pass);
  const bool one_stride = lse.data == nullptr || pass.rows == std::int64_t{pass.heads_q} * pass.len_q ||
                          pass.lse.batch_stride == pass.heads_q * lse.head_stride;
  return one_stride && is_short(pass, pass.scores, pass.to, lse);
}

template <class To, class From>
BasicShortMatrix<To> narrow(const BasicRowMatrix<From>& m) {
  return {m.data, static_cast<unsigned>(m.head_stride), static_cast<unsigned>(m.row_stride)};
}

ShortRows short_rows(const RowPass& pass) {
  return {static_cast<unsigned>(pass.rows), static_cast<unsigned>(pass.len_q), fast_divmod(pass.len_q), pass.len_k,
          pass.masked ? pass.window_end : pass.len_k};
}

template <class Parameters>
void launch_short(const void* kernel, const Call& call, const Parameters& parameters) {
  launch_rows(kernel, parameters.rows.count, kShortRowThreads / 32, kShortRowThreads, call, parameters,
              Dependency::programmatic);
}

void enqueue_short_softmax(const Call& call, const RowPass& pass, DType to) {
  const ShortSoftmax softmax{.rows = short_rows(pass),
                             .abs_scale = pass.abs_scale,
                             .sign = pass.sign,
                             .scores = narrow<const void*>(pass.scores),
                             .to = narrow<void*>(pass.to),
                             .lse = narrow<void*>(lse_of_sequences(pass))};
  launch_short(short_softmax_kernel(kind_of(to)), call, softmax);
}

void enqueue_short_gradient(const Call& call, const RowPass& pass, DType to) {
  const ShortGradient gradient{.rows = short_rows(pass),
                               .factor = pass.factor,
                               .dp = narrow<const void*>(pass.scores),
                               .probabilities = narrow<const void*>(pass.probabilities),
                               .to = narrow<void*>(pass.to),
                               .delta = pass.delta,
                               .delta_stride = static_cast<unsigned>(pass.delta_stride)};
  launch_short(short_gradient_kernel(kind_of(to)), call, gradient);
}

// Enqueues a kernel for short rows and returns true if the pass has one. Rows must be vectors, results 16 bits.
bool enqueue_short(const Call& call, Step step, const RowPass& pass, DType to) {
  if (step == Step::softmax && is_short_softmax(pass)) {
    enqueue_short_softmax(call, pass, to);
    return true;
  }
  if (step == Step::softmax_gradient && is_short(pass, pass.scores, pass.probabilities, pass.to)) {
    enqueue_short_gradient(call, pass, to);
    return true;
  }
  return false;
}

}  // namespace

int threads_of_row(std::int64_t len_k, Step step) {
  const bool halves = step == Step::softmax_gradient || step == Step::exponentials;
  const std::int64_t values = halves ? kRowValues / 2 : kRowValues;
  int threads = 32;
  while (threads < kMostRowThreads && threads * values < len_k) threads *= 2;
  return threads;
}

RowPass pass_over(const Piece& piece, const Matrices& scores, bool masked, double factor) {
  const AttentionProblem& p = piece.problem;
  const std::int64_t bound = std::clamp<std::int64_t>(piece.window_end, std::numeric_limits<int>::min(), 1 << 30);
  const auto wide = static_cast<float>(factor);
  return {.rows = p.batch * p.heads_q * p.len_q,
          .heads_q = static_cast<int>(p.heads_q),
          .len_q = static_cast<int>(p.len_q),
          .len_k = static_cast<int>(p.len_k),
          .window_end = static_cast<int>(bound),
          .masked = masked && p.mask != Mask::none,
          .factor = wide,
          .abs_scale = std::max(std::fabs(wide), std::numeric_limits<float>::denorm_min()),
          .sign = wide < 0 ? -1.0f : 1.0f,
          .scores = row_matrix(scores),
          .to = row_matrix(scores)};
}

void enqueue(const Call& call, Step step, RowPass pass, DType element, DType to) {
  pass.threads = threads_of_row(pass.len_k, step);
  const bool vector = pass.len_k % 4 == 0 && is_vector(pass.scores, DType::fp32) && is_vector(pass.to, to) &&
                      (step != Step::softmax_gradient || is_vector(pass.probabilities, element));
  if (vector && to != DType::fp32 && enqueue_short(call, step, pass, to)) return;
  constexpr int kRowsPerCta = 4;  // with one warp per row
  const int rows_per_cta = pass.threads == 32 ? kRowsPerCta : 1;
  launch_rows(row_pass_kernel(step, kind_of(element), kind_of(to), vector), pass.rows, rows_per_cta,
              rows_per_cta * pass.threads, call, pass);
}

void enqueue_delta(const Call& call, const TensorView& out, const TensorView& dout, const TensorView& given,
                   float* delta) {
  if (given) {
    const Matrices to = dense(delta, DType::fp32, given.sizes);
    return launch_copy(call, given.sizes, {.from = ref(given), .to = ref_of(to)});
  }
  const DeltaPass pass{.rows = out.sizes[0] * out.sizes[1] * out.sizes[2],
                       .heads = static_cast<int>(out.sizes[1]),
                       .len = static_cast<int>(out.sizes[2]),
                       .dim = static_cast<int>(out.sizes[3]),
                       .out = ref(out),
                       .dout = ref(dout),
                       .delta = delta};
  launch_rows(delta_kernel(), pass.rows, kTensorPassThreads / 32, kTensorPassThreads, call, pass);
}

ConstMatrices operand(const Call& call, const TensorView& view, void* scratch) {
  const ConstMatrices itself = matrices_of(view);
  if (itself.row_stride >= view.sizes[3]) return itself;
  const Matrices copied = dense(scratch, view.dtype, view.sizes);
  launch_copy(call, view.sizes, {.from = ref(view), .to = ref_of(copied)});
  return copied;
}

Matrices result(const MutableTensorView& view) { return matrices_of(view); }

Matrices dense(void* data, DType dtype, const Sizes& sizes) {
  const Sizes strides = dense_strides(sizes);
  return {data, dtype, strides[0], strides[1], strides[2]};
}

Matrices pairs(const AttentionProblem& p, void* data, DType dtype) {
  return dense(data, dtype, {p.batch, p.heads_q, p.len_q, p.len_k});
}

Matrices scores_of(const Piece& piece, float* scratch, const Matrices& result) {
  return scratch != nullptr ? pairs(piece.problem, scratch, DType::fp32) : result;
}

void copy(const Call& call, const ConstMatrices& from, const MutableTensorView& to, bool accumulate) {
  launch_copy(call, to.sizes, {.from = ref_of(from), .to = ref(to), .accumulate = accumulate});
}

void fill(const Call& call, const MutableTensorView& to, float value) {
  launch_copy(call, to.sizes, {.to = ref(to), .value = value});
}

}  // namespace fovea::cuda::baselines
