// Enqueues the kernels of a plan on the caller's stream; the host waits for nothing. Forward is one kernel. Before it
// comes a memset of the tile counter, if the plan has one, and after it the combine, if splits combine in memory.
// Backward is the preprocess and one kernel, and a combine if query heads are split; with more than 128 columns, the
// preprocess and two kernels.
#include "cuda/attention/sm90/run.h"

#include <cuda_runtime_api.h>

#include "core/check.h"
#include "cuda/attention/any/gradient_combine.h"
#include "cuda/attention/problem_shape.h"
#include "cuda/attention/sm90/tensor_map.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/placement.h"
#include "cuda/runtime/tensor_refs.h"

namespace fovea::cuda::sm90 {
namespace {

// Fails unless the tensor's map is `encoded`.
void check_map(bool encoded, const core::Plan& plan, std::string_view name, bool aligned) {
  if (encoded) return;
  core::fail({.status = Status::unsupported,
              .call = std::string(plan.call),
              .argument = std::string(name),
              .problem = "TMA cannot read the tensor",
              .got = aligned ? "the driver refuses the tensor map" : "rows that do not start at multiples of 16 bytes",
              .wanted = "rows at multiples of 16 bytes, less than 2^40 bytes apart"});
}

void encode(CUtensorMap& map, const core::Plan& plan, std::string_view name, const TensorView& view, int box_rows) {
  const ConstTensorRef t = ref(view);
  const TensorMapShape shape{view.sizes[3], view.sizes[2], view.sizes[1], view.sizes[0], box_rows};
  check_map(t.aligned && encode_tensor_map(map, t, shape), plan, name, t.aligned);
}

void encode_queries(CUtensorMap& map, const ForwardPlan& plan, const TensorView& view) {
  const ConstTensorRef t = ref(view);
  const QueryMapShape shape{.dim = view.sizes[3],
                            .group = plan.shape.group,
                            .len = view.sizes[2],
                            .heads_kv = plan.shape.heads_kv,
                            .batch = view.sizes[0],
                            .box_heads = plan.packing.heads,
                            .box_rows = plan.packing.queries};
  check_map(t.aligned && encode_query_map(map, t, shape), plan, "q", t.aligned);
}

template <class T>
T* at(void* workspace, std::int64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(workspace) + offset);
}

void launch_preprocess(const BackwardPlan& plan, const BackwardTensors& t, const BackwardParameters& p, void* workspace,
                       cudaStream_t stream) {
  const BackwardPreprocessParameters preprocess{.shape = plan.shape,
                                                .query_tiles = plan.order.query_tiles,
                                                .queries = plan.kernel->queries,
                                                .out = ref(t.out),
                                                .dout = ref(t.dout),
                                                .lse = ref(t.lse),
                                                .delta = ref(t.delta),
                                                .dq = plan.accumulate ? TensorRef{} : p.dq,
                                                .lse_result = at<float>(workspace, plan.lse),
                                                .delta_result = at<float>(workspace, plan.delta),
                                                .turns = p.turns};
  launch(plan.kernel->preprocess, plan.preprocess_ctas, kPreprocessThreads, 0, stream, &preprocess, Dependency::full,
         Carveout::max_shared);
}

// Results go to partials if splits combine in memory, else to `out`, by TMA if it can write them.
void set_results(ForwardParameters& p, const ForwardPlan& plan, const ForwardTensors& t, void* workspace) {
  const Shape& s = plan.shape;
  if (!plan.combines_in_memory()) {
    p.out = ref(t.out);
    const TensorMapShape shape{t.out.sizes[3], t.out.sizes[2], t.out.sizes[1], t.out.sizes[0], kWarpRows};
    p.tma_out =
        plan.kernel->tile.stages_out && plan.packing.heads == 1 && plan.split.splits == 1 &&
        p.out.kind != ElementKind::fp32 && p.out.aligned &&
        encode_tensor_map(
            p.out_map, {p.out.data, p.out.batch_stride, p.out.head_stride, p.out.row_stride, p.out.kind, true}, shape);
    return;
  }
  const std::int64_t head = std::int64_t{s.len_q} * s.dim_v, batch = head * s.heads_q;
  p.out = {at<float>(workspace, plan.partial_out), batch, head, s.dim_v, ElementKind::fp32, true};
  p.partial_state = at<any::PartialState>(workspace, plan.partial_state);
  p.split_stride = batch * s.batch;
}

void launch_combine(const ForwardPlan& plan, const ForwardParameters& p, const ForwardTensors& t, cudaStream_t stream) {
  const any::CombineForwardParameters combine{.shape = plan.shape,
                                              .split = plan.split,
                                              .partial_out = static_cast<const float*>(p.out.data),
                                              .partial_state = p.partial_state,
                                              .out = ref(t.out),
                                              .lse = ref(t.lse)};
  const std::int64_t warps = std::int64_t{plan.shape.batch} * plan.shape.heads_q * plan.shape.len_q;
  launch(any::combine_forward_function(kind_of(t.q.dtype)), divide_up(warps * 32, any::kCombineThreads),
         any::kCombineThreads, 0, stream, &combine, Dependency::programmatic, Carveout::max_shared);
}

// If the gradient is wanted, the kernel writes fp32 partials of it, one per split, and the combine adds them. `like`
// has its sizes.
void write_partials(TensorRef& gradient, const TensorView& like, float* partial, const BackwardPlan& plan,
                    any::GradientCombine& combine) {
  if (gradient.data == nullptr) return;
  // All splits of a key tile visit the same query tiles, so either all have work or none has.
  const any::Split split{.splits = plan.order.splits,
                         .tiles_per_split = 1,
                         .rows = kKeys,
                         .streamed_rows = static_cast<std::int16_t>(plan.kernel->queries)};
  combine.add(like, gradient, partial, split, true);
  const std::int64_t head = like.sizes[2] * like.sizes[3];
  gradient = {partial, like.sizes[1] * head, head, like.sizes[3], ElementKind::fp32, like.sizes[3] % 4 == 0};
}

// A kernel for dK and dV, then one for dQ, which begins as thread blocks of the first one end.
void run_two_pass(const TwoPassPlan& plan, const BackwardTensors& t, const core::RunContext& context) {
  TwoPassParameters p{.q = {},
                      .dout = {},
                      .k = {},
                      .v = {},
                      .shape = plan.shape,
                      .order = plan.dkdv,
                      .dq = ref(t.dq),
                      .dk = ref(t.dk),
                      .dv = ref(t.dv),
                      .accumulate = plan.accumulate,
                      .query_tiles = plan.query_tiles,
                      .lse = at<float>(context.workspace, plan.lse),
                      .delta = at<float>(context.workspace, plan.delta)};
  encode(p.q, plan, "q", t.q, kTwoPassRows);
  encode(p.dout, plan, "dout", t.dout, kTwoPassRows);
  encode(p.k, plan, "k", t.k, kTwoPassRows);
  encode(p.v, plan, "v", t.v, kTwoPassRows);
  const BackwardPreprocessParameters preprocess{.shape = plan.shape,
                                                .query_tiles = plan.query_tiles,
                                                .queries = kTwoPassRows,
                                                .out = ref(t.out),
                                                .dout = ref(t.dout),
                                                .lse = ref(t.lse),
                                                .delta = ref(t.delta),
                                                .dq = {},
                                                .lse_result = at<float>(context.workspace, plan.lse),
                                                .delta_result = at<float>(context.workspace, plan.delta)};
  auto* stream = static_cast<cudaStream_t>(context.stream);
  launch(plan.kernels->preprocess, plan.preprocess_ctas, kPreprocessThreads, 0, stream, &preprocess, Dependency::full,
         Carveout::max_shared);
  if (p.dk.data != nullptr || p.dv.data != nullptr) {
    launch(plan.kernels->dkdv, plan.dkdv.ctas(), kTwoPassThreads, plan.kernels->dkdv_shared_bytes, stream, &p,
           Dependency::programmatic, Carveout::max_shared);
    p.lse_and_delta_ready = true;
  }
  p.order = plan.dq;
  if (p.dq.data != nullptr)
    launch(plan.kernels->dq, plan.dq.ctas(), kTwoPassThreads, plan.kernels->dq_shared_bytes, stream, &p,
           Dependency::programmatic, Carveout::max_shared);
}

}  // namespace

void forward(const core::Plan& any_plan, const ForwardTensors& t, const core::RunContext& context) {
  const CurrentDevice current(any_plan.device.index);
  check_placements(any_plan, t, context);
  const auto& plan = static_cast<const ForwardPlan&>(any_plan);
  const ForwardTile& tile = plan.kernel->tile;
  ForwardParameters p{.q = {},
                      .k = {},
                      .v = {},
                      .out_map = {},
                      .shape = plan.shape,
                      .packing = plan.packing,
                      .split = plan.split,
                      .order = plan.order,
                      .out = {},
                      .lse = ref(t.lse)};
  encode_queries(p.q, plan, t.q);
  encode(p.k, plan, "k", t.k, tile.keys);
  encode(p.v, plan, "v", t.v, tile.keys);
  p.kv_read_once = plan.order.q_tiles == 1 && plan.packing.heads == plan.shape.group;
  set_results(p, plan, t, context.workspace);
  auto* stream = static_cast<cudaStream_t>(context.stream);
  if (plan.has_counter) {
    p.order.counter = static_cast<unsigned*>(context.workspace);
    check(cudaMemsetAsync(p.order.counter, 0, sizeof(unsigned), stream), "cudaMemsetAsync");
  }
  launch(plan.kernel->function, plan.ctas, tile.threads(), plan.kernel->shared_bytes, stream, &p, Dependency::full,
         Carveout::max_shared, plan.split.in_cluster ? plan.split.splits : 1);
  if (plan.combines_in_memory()) launch_combine(plan, p, t, stream);
}

void backward(const core::Plan& any_plan, const BackwardTensors& t, const core::RunContext& context) {
  const CurrentDevice current(any_plan.device.index);
  check_placements(any_plan, t, context);
  if (const auto* two_pass = dynamic_cast<const TwoPassPlan*>(&any_plan)) return run_two_pass(*two_pass, t, context);
  const auto& plan = static_cast<const BackwardPlan&>(any_plan);
  BackwardParameters p{.q = {},
                       .dout = {},
                       .k = {},
                       .v = {},
                       .shape = plan.shape,
                       .order = plan.order,
                       .dq = ref(t.dq),
                       .dk = ref(t.dk),
                       .dv = ref(t.dv),
                       .accumulate = plan.accumulate,
                       .lse = at<float>(context.workspace, plan.lse),
                       .delta = at<float>(context.workspace, plan.delta),
                       .dq_sum = at<float>(context.workspace, plan.dq_sum),
                       .turns = at<unsigned>(context.workspace, plan.turns)};
  any::GradientCombine combine(plan.shape, plan.accumulate, kind_of(t.q.dtype));
  if (plan.order.splits > 1) {
    write_partials(p.dk, t.k, at<float>(context.workspace, plan.partial_dk), plan, combine);
    write_partials(p.dv, t.v, at<float>(context.workspace, plan.partial_dv), plan, combine);
  }
  encode(p.q, plan, "q", t.q, plan.kernel->queries);
  encode(p.dout, plan, "dout", t.dout, plan.kernel->queries);
  encode(p.k, plan, "k", t.k, kKeys);
  encode(p.v, plan, "v", t.v, kKeys);
  auto* stream = static_cast<cudaStream_t>(context.stream);
  launch_preprocess(plan, t, p, context.workspace, stream);
  launch(plan.kernel->function, plan.ctas, kBackwardThreads, plan.kernel->shared_bytes, stream, &p,
         Dependency::programmatic, Carveout::max_shared);
  combine.launch(stream);
}

}  // namespace fovea::cuda::sm90
