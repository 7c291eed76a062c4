// Forward is one kernel, and a memset of its tile counter under a mask. Enqueued on the caller's stream; the host waits
// for nothing.
#include "cuda/attention/sm90/run.h"

#include <cuda_runtime_api.h>

#include "core/check.h"
#include "cuda/attention/sm90/tensor_map.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/placement.h"
#include "cuda/runtime/tensor_refs.h"

namespace fovea::cuda::sm90 {
namespace {

void encode(CUtensorMap& map, std::string_view name, const TensorView& view, int box_rows) {
  const ConstTensorRef t = ref(view);
  if (t.aligned && encode_tensor_map(map, t, {view.sizes[3], view.sizes[2], view.sizes[1], view.sizes[0], box_rows}))
    return;
  core::fail(
      {.status = Status::unsupported,
       .call = "attention_forward",
       .argument = std::string(name),
       .problem = "TMA cannot read the tensor",
       .got = t.aligned ? "the driver refuses the tensor map" : "rows that do not start at multiples of 16 bytes",
       .wanted = "rows at multiples of 16 bytes, less than 2^40 bytes apart"});
}

}  // namespace

void forward(const core::Plan& any_plan, const ForwardTensors& t, const core::RunContext& context) {
  const CurrentDevice current(any_plan.device.index);
  check_placements(any_plan, t, context);
  const auto& plan = static_cast<const ForwardPlan&>(any_plan);
  const ForwardTile& tile = plan.kernel->tile;
  ForwardParameters p{
      .q = {}, .k = {}, .v = {}, .shape = plan.shape, .order = plan.order, .out = ref(t.out), .lse = ref(t.lse)};
  encode(p.q, "q", t.q, tile.rows());
  encode(p.k, "k", t.k, tile.keys);
  encode(p.v, "v", t.v, tile.keys);
  auto* stream = static_cast<cudaStream_t>(context.stream);
  if (plan.has_counter) {
    p.order.counter = static_cast<unsigned*>(context.workspace);
    check(cudaMemsetAsync(p.order.counter, 0, sizeof(unsigned), stream), "cudaMemsetAsync");
  }
  launch(plan.kernel->function, plan.ctas, tile.threads(), plan.kernel->shared_bytes, stream, &p, Dependency::full,
         Carveout::max_shared);
}

}  // namespace fovea::cuda::sm90
