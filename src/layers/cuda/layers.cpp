// Enqueues a layer's parts on a stream. The host waits for nothing.
#include "layers/cuda/layers.h"

#include "cuda/runtime/device_info.h"
#include "cuda/runtime/placement.h"
#include "cuda/runtime/workspace_pool.h"
#include "heads/cuda/passes.h"
#include "layers/cuda/weight_copies.h"
#include "layers/norms.h"
#include "layers/run.h"

namespace fovea::layers {
namespace {

using cuda::placed;

// Adds the caller's tensors to the list that check() reads; parts do not check them again.
template <class Projections>
void add_memory(const Steps& steps, const Projections& all, std::vector<cuda::Placed>& memory) {
  for (const Step& step : steps) {
    memory.push_back(placed(name_of(step.slot), at(all, step.slot).weight));
    memory.push_back(placed(name_of(step.slot), at(all, step.slot).bias));
  }
}

template <class Norms>
void add_norms(const Norms& all, std::vector<cuda::Placed>& memory) {
  for (const Norm norm : kAllNorms) memory.push_back(placed(name_of(norm), at(all, norm)));
}

void check(const Plan& plan, std::vector<cuda::Placed> memory, const Buffer& saved, const core::RunContext& context) {
  memory.push_back({"saved", saved.data});
  memory.push_back(cuda::callers_workspace(context));
  cuda::check_stream(context.stream, cuda::site_of(plan));
  cuda::check_memory(memory, cuda::site_of(plan));
}

void forward_on_device(const core::Plan& base, const LayerForwardTensors& t, const core::RunContext& context) {
  const auto& plan = static_cast<const Plan&>(base);
  const cuda::CurrentDevice current(plan.device.index);
  std::vector<cuda::Placed> memory{placed("x", t.x), placed("x_kv", t.x_kv), placed("y", t.y)};
  add_memory(steps_of(plan.request), t.parameters, memory);
  add_norms(t.norms, memory);
  memory.insert(memory.end(),
                {placed("cache.k", t.cache.k), placed("cache.v", t.cache.v), placed("cache.latent", t.cache.latent)});
  check(plan, std::move(memory), t.saved, context);
  forward(plan, t, context, {copy_weights_on_gpu, heads::passes_on_gpu()});
}

void backward_on_device(const core::Plan& base, const LayerBackwardTensors& t, const core::RunContext& context) {
  const auto& plan = static_cast<const Plan&>(base);
  const cuda::CurrentDevice current(plan.device.index);
  std::vector<cuda::Placed> memory{placed("x", t.x), placed("x_kv", t.x_kv), placed("dy", t.dy), placed("dx", t.dx),
                                   placed("dx_kv", t.dx_kv)};
  const Steps steps = steps_of(plan.request);
  for (const Step& step : steps) memory.push_back(placed(name_of(step.slot), at(t.parameters, step.slot).weight));
  add_memory(steps, t.gradients, memory);
  add_norms(t.norms, memory), add_norms(t.norm_gradients, memory);
  check(plan, std::move(memory), t.saved, context);
  backward(plan, t, context, {copy_weights_on_gpu, heads::passes_on_gpu()});
}

}  // namespace

std::vector<Implementation> cuda_implementations() {
  return {{.name = "composed",
           .device = DeviceKind::cuda,
           .unavailable = [](int) { return cuda::unavailable(); },
           .prepare = prepare,
           .forward = forward_on_device,
           .backward = backward_on_device,
           .allocate_workspace = cuda::allocate_workspace,
           .release_workspace = cuda::release_workspace}};
}

}  // namespace fovea::layers
