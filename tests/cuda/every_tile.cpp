// Lists the tiles and their splits, and runs one.
#include "every_tile.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "cuda/attention/any/run.h"
#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"

namespace fovea::cuda {
namespace {

using any::Kernel, any::KernelInstance, any::PlanOverride;

// The splits that a tile can have on this device: tiles with split_warps have none, and thread blocks that compute
// different gradients form no cluster.
std::vector<PlanOverride> overrides_of(const KernelInstance& one) {
  std::vector<PlanOverride> all{{.kernel = &one, .splits = 1}};
  if (one.tile.split_warps > 1) return all;
  all.push_back({.kernel = &one, .splits = 3});
  if (one.separate_dk_dv || resident_ctas(one.function, one.tile.threads(), one.shared_bytes, 0) == 0) return all;
  for (const int cluster : {2, 8}) {
    if (resident_clusters(one.function, one.tile.threads(), one.shared_bytes, cluster, 0) > 0)
      all.push_back({.kernel = &one, .splits = cluster, .in_cluster = true});
  }
  return all;
}

template <class Plan, class Tensors>
void run(const Plan& plan, const Tensors& tensors) {
  const DeviceMemory workspace(std::max<std::int64_t>(plan.workspace_bytes, 256));
  any::enqueue(plan, tensors, {.workspace = workspace.data()});
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

}  // namespace

std::vector<TileRun> every_tile() {
  std::vector<TileRun> all;
  for (const Kernel kernel : {Kernel::forward, Kernel::backward_dkdv, Kernel::backward_dq}) {
    for (const auto& [kind, dtype] :
         {std::pair{ElementKind::fp32, "fp32"}, {ElementKind::bf16, "bf16"}, {ElementKind::fp16, "fp16"}}) {
      for (const KernelInstance& one : any::instances(kernel, kind)) {
        if (one.shared_bytes > usable_shared_memory(0)) continue;
        for (const PlanOverride& choice : overrides_of(one)) all.push_back({kernel, dtype, choice});
      }
    }
  }
  return all;
}

std::string text_of(const TileRun& tile, const verification::AttentionCase& c) {
  constexpr const char* kNames[] = {"forward", "backward_dkdv", "backward_dq"};
  const TileShape& shape = tile.choice.kernel->tile;
  return std::string(kNames[static_cast<int>(tile.kernel)]) + " " + std::to_string(shape.rows()) + "x" +
         std::to_string(shape.streamed_rows()) + ", " + std::to_string(tile.choice.splits) +
         (tile.choice.in_cluster ? " in a cluster" : " splits") + ", " + verification::line_of(c);
}

BackwardTensors gradients_of(Kernel kernel, BackwardTensors tensors) {
  if (kernel == Kernel::backward_dkdv) tensors.dq = {};
  if (kernel == Kernel::backward_dq) tensors.dk = tensors.dv = {};
  return tensors;
}

AttentionProblem problem_of(Kernel kernel, AttentionProblem problem) {
  problem.device = {DeviceKind::cuda, 0};
  problem.pass = kernel == Kernel::forward ? Pass::forward : Pass::backward;
  if (kernel == Kernel::forward) return problem;
  problem.wants_dq = kernel == Kernel::backward_dq;
  problem.wants_dk = problem.wants_dv = kernel == Kernel::backward_dkdv;
  return problem;
}

void run_forward(const TileRun& tile, const AttentionProblem& problem, const ForwardTensors& tensors) {
  run(any::plan_forward(problem, tile.choice), tensors);
}

void run_backward(const TileRun& tile, const AttentionProblem& problem, const BackwardTensors& tensors) {
  run(any::plan_backward(problem, tile.choice, tile.choice), gradients_of(tile.kernel, tensors));
}

}  // namespace fovea::cuda
