// Forward: one kernel, and a combine if the keys are split. Backward: preprocess, dK and dV, dQ, and a combine. All are
// enqueued on the caller's stream; the host waits for nothing.
#include "cuda/attention/any/run.h"

#include <cuda_runtime_api.h>

#include "cuda/attention/any/gradient_combine.h"
#include "cuda/attention/any/plan.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/placement.h"
#include "cuda/runtime/tensor_refs.h"

namespace fovea::cuda::any {
namespace {

// Floats at a byte offset of the workspace; null if the plan needs none.
float* at(void* workspace, std::int64_t offset) {
  return offset < 0 ? nullptr : reinterpret_cast<float*>(static_cast<char*>(workspace) + offset);
}

template <class Parameters>
void launch_tiles(const KernelInstance& kernel, std::int64_t ctas, int shared_bytes, cudaStream_t stream,
                  const Parameters& parameters, Dependency dependency) {
  launch(kernel.function, ctas, kernel.tile.threads(), shared_bytes, stream, &parameters, dependency,
         Carveout::max_shared, parameters.split.in_cluster ? parameters.split.splits : 1);
}

void launch_preprocess(const BackwardPlan& plan, const BackwardTensors& t, void* workspace, cudaStream_t stream) {
  const PreprocessParameters preprocess{.shape = plan.shape,
                                        .out = ref(t.out),
                                        .dout = ref(t.dout),
                                        .lse = ref(t.lse),
                                        .delta = ref(t.delta),
                                        .lse_result = at(workspace, plan.lse),
                                        .delta_result = at(workspace, plan.delta)};
  launch(preprocess_function(plan.kind), plan.preprocess_ctas, kPreprocessThreads, 0, stream, &preprocess,
         Dependency::full, Carveout::max_shared);
}

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
  launch_tiles(*plan.kernel, plan.ctas, plan.shared_bytes, stream, p, Dependency::full);
  if (plan.partial_out < 0) return;
  const CombineForwardParameters combine{.shape = p.shape,
                                         .split = plan.split,
                                         .partial_out = p.partial_out,
                                         .partial_state = p.partial_state,
                                         .out = p.out,
                                         .lse = p.lse};
  const std::int64_t warps = std::int64_t{plan.shape.batch} * plan.shape.heads_q * plan.shape.len_q;
  launch(combine_forward_function(plan.kind), divide_up(warps * 32, kCombineThreads), kCombineThreads, 0, stream,
         &combine, Dependency::programmatic, Carveout::max_shared);
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
  launch_preprocess(plan, t, context.workspace, stream);
  GradientCombine combine(p.shape, p.accumulate, plan.kind);
  if (plan.dkdv.kernel != nullptr) {
    p.split = plan.dkdv.split;
    p.grid = plan.dkdv.grid;
    p.partial_dk_or_dq = at(context.workspace, plan.dkdv.partial_dk_or_dq);
    p.partial_dv = at(context.workspace, plan.dkdv.partial_dv);
    launch_tiles(*plan.dkdv.kernel, plan.dkdv.ctas, plan.dkdv.shared_bytes, stream, p, Dependency::programmatic);
    combine.add(t.k, p.dk, p.partial_dk_or_dq, p.split, true);
    combine.add(t.v, p.dv, p.partial_dv, p.split, true);
  }
  if (plan.dq.kernel != nullptr) {
    // After backward_dkdv, backward_dq need not wait for lse and delta: backward_dkdv has waited for
    // backward_preprocess.
    p.preprocess_done = plan.dkdv.ctas > 0;
    p.split = plan.dq.split;
    p.grid = plan.dq.grid;
    p.partial_dk_or_dq = at(context.workspace, plan.dq.partial_dk_or_dq);
    launch_tiles(*plan.dq.kernel, plan.dq.ctas, plan.dq.shared_bytes, stream, p, Dependency::programmatic);
    combine.add(t.q, p.dq, p.partial_dk_or_dq, p.split, false);
  }
  combine.launch(stream);
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
