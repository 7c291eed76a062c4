// Forward: one kernel, and a combine if the keys are split. Backward: preprocess, dK and dV, dQ, and a combine.
// Everything is enqueued on the caller's stream; nothing waits.
#include "cuda/attention/any/run.h"

#include <cuda_runtime_api.h>

#include "cuda/attention/any/plan.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/placement.h"

namespace fovea::cuda::any {
namespace {

template <class Pointer>
TensorRef ref(const BasicTensorView<Pointer>& t) {
  const std::int64_t bytes = size_of(t.dtype);
  bool vector = reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
  for (int i = 0; i < 3; ++i) vector = vector && (t.sizes[i] <= 1 || t.strides[i] * bytes % 16 == 0);
  const auto stride = [&t](int i) { return t.sizes[i] > 1 ? t.strides[i] : 0; };
  return {
      const_cast<void*>(static_cast<const void*>(t.data)), stride(0), stride(1), stride(2), kind_of(t.dtype), vector};
}

float* at(void* workspace, std::int64_t offset) {
  return offset < 0 ? nullptr : reinterpret_cast<float*>(static_cast<char*>(workspace) + offset);
}

// Thread blocks of a kernel that gives each row of `dim` columns a power of two of threads, a warp at most.
std::int64_t row_blocks(std::int64_t rows, std::int64_t dim) {
  std::int64_t threads = 1;
  while (threads < 32 && threads * 4 < dim) threads *= 2;
  return (rows * threads + kMemoryKernelThreads - 1) / kMemoryKernelThreads;
}

template <class Parameters>
void launch_tiles(const KernelInstance& kernel, std::int64_t blocks, int shared_bytes, cudaStream_t stream,
                  const Parameters& parameters, Dependency dependency) {
  launch(kernel.function, blocks, kernel.tile.threads(), shared_bytes, stream, &parameters, dependency,
         Memory::mostly_shared, parameters.split.in_cluster ? parameters.split.splits : 1);
}

void launch_preprocess(const BackwardPlan& plan, const BackwardTensors& t, const BackwardParameters& p,
                       cudaStream_t stream) {
  const PreprocessParameters preprocess{.shape = p.shape,
                                        .out = ref(t.out),
                                        .dout = p.dout,
                                        .lse = ref(t.lse),
                                        .delta = ref(t.delta),
                                        .lse_result = const_cast<float*>(p.lse),
                                        .delta_result = const_cast<float*>(p.delta)};
  launch(preprocess_function(plan.kind), plan.preprocess_ctas, kPreprocessThreads, 0, stream, &preprocess,
         Dependency::full, Memory::mostly_shared);
}

// Combines the splits of all gradients in one kernel.
class GradientCombine {
 public:
  GradientCombine(const BackwardParameters& p, ElementKind kind)
      : sums_{.shape = p.shape, .accumulate = p.accumulate, .sums = {}}, kind_(kind) {}

  // Of a gradient of the sizes of `like`; null `partial`: not split.
  void add(const TensorView& like, const TensorRef& result, const float* partial, const Split& split, bool is_dkdv) {
    if (partial == nullptr) return;
    sums_.sums[sums_.count++] = {.split = split,
                                 .is_dkdv = is_dkdv,
                                 .heads = static_cast<int>(like.sizes[1]),
                                 .len = static_cast<int>(like.sizes[2]),
                                 .dim = static_cast<int>(like.sizes[3]),
                                 .partial = partial,
                                 .result = result,
                                 .first_cta = static_cast<unsigned>(blocks_)};
    blocks_ += row_blocks(like.sizes[0] * like.sizes[1] * like.sizes[2], like.sizes[3]);
  }
  void launch(cudaStream_t stream) {
    if (sums_.count > 0)
      cuda::launch(combine_gradients_function(kind_), blocks_, kMemoryKernelThreads, 0, stream, &sums_,
                   Dependency::programmatic, Memory::mostly_shared);
  }

 private:
  CombineGradientsParameters sums_;
  ElementKind kind_;
  std::int64_t blocks_ = 0;
};

}  // namespace

void enqueue(const ForwardPlan& plan, const ForwardTensors& t, const core::RunContext& context) {
  auto* stream = static_cast<cudaStream_t>(context.stream);
  const ForwardParameters p{
      .grid = plan.grid,
      .split = plan.split,
      .q = ref(t.q),
      .k = ref(t.k),
      .shape = plan.shape,
      .v = ref(t.v),
      .out = ref(t.out),
      .lse = ref(t.lse),
      .partial_out = at(context.workspace, plan.partial_out),
      .partial_state = reinterpret_cast<PartialState*>(at(context.workspace, plan.partial_state))};
  launch_tiles(*plan.kernel, plan.blocks, plan.shared_bytes, stream, p, Dependency::full);
  if (plan.partial_out < 0) return;
  const CombineForwardParameters combine{.shape = p.shape,
                                         .split = plan.split,
                                         .partial_out = p.partial_out,
                                         .partial_state = p.partial_state,
                                         .out = p.out,
                                         .lse = p.lse};
  const std::int64_t warps = std::int64_t{plan.shape.batch} * plan.shape.heads_q * plan.shape.len_q;
  launch(combine_forward_function(plan.kind), (warps * 32 + kMemoryKernelThreads - 1) / kMemoryKernelThreads,
         kMemoryKernelThreads, 0, stream, &combine, Dependency::programmatic, Memory::mostly_shared);
}

void enqueue(const BackwardPlan& plan, const BackwardTensors& t, const core::RunContext& context) {
  auto* stream = static_cast<cudaStream_t>(context.stream);
  BackwardParameters p{.shape = plan.shape,
                       .q = ref(t.q),
                       .k = ref(t.k),
                       .v = ref(t.v),
                       .dout = ref(t.dout),
                       .dq = ref(t.dq),
                       .dk = ref(t.dk),
                       .dv = ref(t.dv),
                       .lse = at(context.workspace, plan.lse),
                       .delta = at(context.workspace, plan.delta),
                       .accumulate = plan.accumulate,
                       .split = {},
                       .grid = {}};
  launch_preprocess(plan, t, p, stream);
  GradientCombine sums(p, plan.kind);
  if (plan.keys.kernel != nullptr) {
    p.split = plan.keys.split;
    p.grid = plan.keys.grid;
    p.partial_first = at(context.workspace, plan.keys.partial_first);
    p.partial_second = at(context.workspace, plan.keys.partial_second);
    launch_tiles(*plan.keys.kernel, plan.keys.blocks, plan.keys.shared_bytes, stream, p, Dependency::programmatic);
    sums.add(t.k, p.dk, p.partial_first, p.split, true);
    sums.add(t.v, p.dv, p.partial_second, p.split, true);
  }
  if (plan.queries.kernel != nullptr) {
    // After backward_dkdv it need not wait: both read only what backward_preprocess wrote.
    p.preprocess_done = plan.keys.blocks > 0;
    p.split = plan.queries.split;
    p.grid = plan.queries.grid;
    p.partial_first = at(context.workspace, plan.queries.partial_first);
    launch_tiles(*plan.queries.kernel, plan.queries.blocks, plan.queries.shared_bytes, stream, p,
                 Dependency::programmatic);
    sums.add(t.q, p.dq, p.partial_first, p.split, false);
  }
  sums.launch(stream);
}

void forward(const core::Plan& plan, const ForwardTensors& t, const core::RunContext& context) {
  const CurrentDevice current(plan.device.index);
  check_placements(plan, t, context);
  enqueue(static_cast<const ForwardPlan&>(plan), t, context);
}

void backward(const core::Plan& plan, const BackwardTensors& t, const core::RunContext& context) {
  const CurrentDevice current(plan.device.index);
  check_placements(plan, t, context);
  enqueue(static_cast<const BackwardPlan&>(plan), t, context);
}

}  // namespace fovea::cuda::any
