// Enqueues the kernels of row passes.
#include "heads/cuda/passes.h"

#include <algorithm>
#include <cmath>

#include "cuda/runtime/launch.h"
#include "cuda/runtime/tensor_refs.h"
#include "heads/cuda/kernels.h"
#include "heads/gpu_grid.h"

namespace fovea::heads {
namespace {

using cuda::ref;

constexpr std::int64_t kMaxGrid = 0x7fffffff;

RotationParameters parameters_of(const std::optional<Rotation>& r) {
  if (!r) return {};
  return {.first_column = r->first_column,
          .pairs = r->columns / 2,
          .first_position = r->first_position,
          .log2_theta = std::log2(r->theta),
          .halves = r->pairs == RotaryPairs::halves};
}

template <class Parameters>
void enqueue(const void* kernel, std::int64_t ctas, int threads, const Parameters& parameters,
             const core::RunContext& context, std::int64_t pairs = 0,
             cuda::Dependency dependency = cuda::Dependency::full) {
  if (ctas == 0) return;
  cuda::launch(kernel, ctas, threads, static_cast<int>(pairs * 2 * size_of(DType::fp32)),
               static_cast<cudaStream_t>(context.stream), &parameters, dependency);
}

// Whether a thread can read and write 16 bytes of the rotated columns at a time.
bool has_vectors(const MutableTensorView& rows, const Rotation& r) {
  const std::int64_t vector = 16 / size_of(rows.dtype);
  const std::int64_t together = r.pairs == RotaryPairs::halves ? r.columns / 2 : r.columns;
  return ref(rows).aligned && r.first_column % vector == 0 && together % vector == 0 &&
         rows.sizes[0] * rows.sizes[1] * r.columns < kMaxGrid;
}

void rotate(const MutableTensorView& rows, const Rotation& rotation, float direction, const core::RunContext& context) {
  const auto& [batches, heads, len, dim] = rows.sizes;
  if (batches * heads * len == 0) return;
  const std::int64_t parts = std::min(batches, (kEnoughGpuCtas + len - 1) / len), each = (batches + parts - 1) / parts;
  const RotateParameters parameters{.batches = batches,
                                    .batches_each = each,
                                    .len = len,
                                    .heads = static_cast<unsigned>(heads),
                                    .rows = ref(rows),
                                    .rotation = parameters_of(rotation),
                                    .direction = direction};
  enqueue(rotate_kernel(parameters.rows.kind, parameters.rotation.halves), (batches + each - 1) / each * len,
          kRotateThreads, parameters, context, parameters.rotation.pairs, cuda::Dependency::programmatic);
}

void forward_on_gpu(const RowPass& pass, const core::RunContext& context) {
  if (pass.rotation && !pass.weight && pass.from.data == pass.to.data && has_vectors(pass.to, *pass.rotation))
    return rotate(pass.to, *pass.rotation, 1.0f, context);
  const Sizes& sizes = pass.to.sizes;
  const ForwardParameters parameters{.tokens = sizes[0] * sizes[2],
                                     .len = sizes[2],
                                     .heads = sizes[1],
                                     .dim = sizes[3],
                                     .from = ref(pass.from),
                                     .to = ref(pass.to),
                                     .weight = ref(pass.weight),
                                     .epsilon = static_cast<float>(pass.epsilon),
                                     .rotation = parameters_of(pass.rotation)};
  enqueue(forward_kernel(), std::min(parameters.tokens, kMaxGrid), kGpuWarps * 32, parameters, context,
          parameters.rotation.pairs);
}

void backward_on_gpu(const RowPassBackward& pass, const core::RunContext& context) {
  const Sizes& sizes = pass.dx.sizes;
  if (pass.rotation && !pass.weight && pass.dy.data == pass.dx.data && sizes == pass.dy.sizes && !pass.accumulate &&
      has_vectors(pass.dx, *pass.rotation))
    return rotate(pass.dx, *pass.rotation, -1.0f, context);
  const BackwardParameters parameters{.tokens = sizes[0] * sizes[2],
                                      .len = sizes[2],
                                      .heads = sizes[1],
                                      .dim = sizes[3],
                                      .summed = sizes[1] == 1 ? pass.dy.sizes[1] : 1,
                                      .x = ref(pass.x),
                                      .dy = ref(pass.dy),
                                      .dx = ref(pass.dx),
                                      .weight = ref(pass.weight),
                                      .epsilon = static_cast<float>(pass.epsilon),
                                      .rotation = parameters_of(pass.rotation),
                                      .partial = pass.partial,
                                      .accumulate = pass.accumulate};
  const std::int64_t most = pass.partial == nullptr ? kMaxGrid : kMostGpuCtas;
  enqueue(backward_kernel(), std::min(parameters.tokens, most), kGpuWarps * 32, parameters, context,
          parameters.rotation.pairs);
}

void sum_on_gpu(const WeightGradient& sum, const core::RunContext& context) {
  const std::int64_t columns = sum.dweight.sizes[3];
  const SumParameters parameters{sum.rows, columns, sum.partial, ref(sum.dweight), sum.accumulate};
  enqueue(sum_kernel(), (columns + kSumColumns - 1) / kSumColumns, kSumThreads, parameters, context, 0,
          cuda::Dependency::programmatic);
}

}  // namespace

const Passes& passes_on_gpu() {
  static constexpr Passes kPasses{forward_on_gpu, backward_on_gpu, sum_on_gpu};
  return kPasses;
}

}  // namespace fovea::heads
