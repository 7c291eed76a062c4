// Chooses tiles and splits by the predictions of estimate.h, and lays out the workspace.
#include "cuda/attention/any/plan.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "attention/scale.h"
#include "cuda/attention/any/estimate.h"
#include "cuda/attention/any/instances.h"
#include "cuda/attention/problem_shape.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/tensor_refs.h"

namespace fovea::cuda::any {
namespace {

constexpr std::int64_t kMaxGrid = (std::int64_t{1} << 31) - 1;

// Divides the workspace into arrays of floats, 256-byte aligned.
struct Arena {
  std::int64_t bytes = 0;
  std::int64_t take(std::int64_t floats) {
    const std::int64_t offset = bytes;
    bytes += divide_up(floats * 4, 256) * 256;
    return offset;
  }
};

// Splits that combine.cu adds up. The splits of a cluster combine themselves.
std::int64_t splits_in_memory(const Split& split) { return split.in_cluster ? 1 : split.splits; }

// The choice with the least cycles_of + extra_cycles, and that sum; null if there are no choices.
std::pair<const TileChoice*, double> preferred(const std::vector<TileChoice>& all, const AttentionProblem& p) {
  std::pair<const TileChoice*, double> best{nullptr, HUGE_VAL};
  for (const TileChoice& one : all) {
    const double cycles = cycles_of(one, kind_of(p.dtype), p.device.index) + extra_cycles(one, p.device.index);
    if (cycles < best.second) best = {&one, cycles};
  }
  return best;
}

// The order of tiles of `rows` stationary rows. 16-bit elements keep all tiles of a (batch, head) together, so that its
// K and V stay in the L2 cache. fp32 tiles reuse each byte more, so it is enough to keep 128 rows together. The longest
// tiles of a causal mask then come first over all heads, and only short ones run at the end.
Grid grid_of(const AttentionProblem& p, bool rows_are_keys, int rows) {
  const std::int64_t tiles = std::max<std::int64_t>(divide_up(rows_are_keys ? p.len_k : p.len_q, rows), 1);
  const std::int64_t heads = std::max<std::int64_t>(rows_are_keys ? p.heads_kv : p.heads_q, 1);
  const std::int64_t group = std::max<std::int64_t>(p.heads_q / std::max<std::int64_t>(p.heads_kv, 1), 1);
  const std::int64_t chunk = p.dtype != DType::fp32 ? tiles : rows < 128 && tiles % 2 == 0 ? 2 : 1;
  const std::int64_t round = chunk * heads * std::max<std::int64_t>(p.batch, 1);
  return {.tiles = static_cast<int>(tiles),
          .heads = static_cast<int>(heads),
          .chunk = static_cast<int>(chunk),
          .round = static_cast<unsigned>(round),
          .round_divmod = fast_divmod(round),
          .chunk_divmod = fast_divmod(chunk),
          .heads_divmod = fast_divmod(heads),
          .group_divmod = fast_divmod(group)};
}

template <class Plan>
void set_tiles(Plan& plan, const TileChoice& chosen, const AttentionProblem& p, bool rows_are_keys) {
  plan.kernel = chosen.kernel;
  plan.split = chosen.splitting.split;
  plan.grid = grid_of(p, rows_are_keys, plan.split.rows);
  plan.shared_bytes = chosen.splitting.shared_bytes;
  plan.ctas = chosen.workload.tiles * plan.split.splits;
}

GradientPlan plan_dkdv(const TileChoice& chosen, const AttentionProblem& p, Arena& arena) {
  GradientPlan plan;
  set_tiles(plan, chosen, p, true);
  if (const std::int64_t splits = splits_in_memory(plan.split); splits > 1) {
    const std::int64_t rows = splits * p.batch * p.heads_kv * p.len_k;
    if (p.wants_dk) plan.partial_dk_or_dq = arena.take(rows * p.dim_qk);
    if (p.wants_dv) plan.partial_dv = arena.take(rows * p.dim_v);
  }
  return plan;
}

GradientPlan plan_dq(const TileChoice& chosen, const AttentionProblem& p, Arena& arena) {
  GradientPlan plan;
  set_tiles(plan, chosen, p, false);
  if (const std::int64_t splits = splits_in_memory(plan.split); splits > 1)
    plan.partial_dk_or_dq = arena.take(splits * p.batch * p.heads_q * p.len_q * p.dim_qk);
  return plan;
}

// A kernel's code is loaded at its first use, which allocates driver memory. Do it here, before a call writes anything.
// tile_choices has loaded the tiles' kernels already: it asks for their occupancy.
void load_code(const void* function, const AttentionProblem& p) { threads_allowed(function, p.device.index); }

std::string text_of(const KernelInstance& kernel, const Split& split) {
  const TileShape& t = kernel.tile;
  std::string text = std::to_string(t.rows()) + "x" + std::to_string(t.streamed_rows()) + " of " +
                     std::to_string(t.dim) + " columns, " + std::to_string(t.warps) + " warps, " +
                     std::to_string(kernel.shared_bytes) + " bytes shared";
  if (split.in_cluster)
    text += ", clusters of " + std::to_string(split.splits);
  else if (split.splits > 1)
    text += ", " + std::to_string(split.splits) + " splits of " + std::to_string(split.tiles_per_split) + " tiles";
  return text;
}

// Half of kMaxGrid for tiles of 32 rows, since tiles of 16 rows, or separate thread blocks for dK and dV, double the
// grid. There are splits only where tiles are few. Without query heads, the key heads still have gradients: zeros.
std::string grid_refusal(const AttentionProblem& p) {
  constexpr std::int64_t kMost = kMaxGrid / 2;
  const std::int64_t tiles = divide_up(std::max(p.len_q, p.len_k), 32) + 1, heads = std::max(p.heads_q, p.heads_kv);
  // Sizes are compared one by one, since their product may overflow where another size is 0.
  if (heads <= kMost / tiles && p.batch <= kMost / tiles / std::max<std::int64_t>(heads, 1)) return {};
  return "batch x " + std::string(p.heads_q >= p.heads_kv ? "heads_q" : "heads_kv") +
         " x (tiles + 1) = " + std::to_string(p.batch) + " x " + std::to_string(heads) + " x " + std::to_string(tiles) +
         ", takes up to " + std::to_string(kMost);
}

// Why these kernels do not take the problem; empty if they do.
std::string refusal(const AttentionProblem& p) {
  const std::int64_t dim = std::max(p.dim_qk, p.dim_v);
  if (dim > 256) return "head dimension " + std::to_string(dim) + ", takes 1 to 256";
  if (std::max(p.len_q, p.len_k) > kMaxLength)
    return "length " + std::to_string(std::max(p.len_q, p.len_k)) + ", takes up to " + std::to_string(kMaxLength);
  if (std::string reason = attention::scale_refusal(p.scale); !reason.empty()) return reason;
  if (std::string reason = grid_refusal(p); !reason.empty()) return reason;
  // This GPU may be too old even though another one of the machine is not.
  if (const std::string too_old = capability_refusal(device_info(p.device.index)); !too_old.empty()) return too_old;
  const int limit = usable_shared_memory(p.device.index);
  for (const Kernel kernel : {Kernel::forward, Kernel::backward_dkdv, Kernel::backward_dq}) {
    const auto all = instances(kernel, kind_of(p.dtype));
    if (std::none_of(all.begin(), all.end(), [&](const auto& one) { return fits(one, dim, limit); }))
      return "no tile fits " + std::to_string(limit) + " bytes of shared memory";
  }
  return {};
}

}  // namespace

std::span<const KernelInstance> instances(Kernel kernel, ElementKind kind) {
  switch (kernel) {
    case Kernel::forward:
      return by_kind(kind, forward_fp32, forward_bf16, forward_fp16)();
    case Kernel::backward_dkdv:
      return by_kind(kind, backward_dkdv_fp32, backward_dkdv_bf16, backward_dkdv_fp16)();
    case Kernel::backward_dq:
      return by_kind(kind, backward_dq_fp32, backward_dq_bf16, backward_dq_fp16)();
  }
  return {};
}

core::Prepared prepare(const AttentionProblem& p, int) {
  if (std::string reason = refusal(p); !reason.empty()) return {.refusal = std::move(reason)};
  if (p.pass == Pass::forward) return {.plan = std::make_shared<ForwardPlan>(plan_forward(p, {}))};
  return {.plan = std::make_shared<BackwardPlan>(plan_backward(p, {}, {}))};
}

ForwardPlan plan_forward(const AttentionProblem& p, const PlanOverride& plan_override) {
  ForwardPlan plan(p);
  plan.kind = kind_of(p.dtype);
  plan.shape = shape_of(p);
  const std::vector<TileChoice> all = tile_choices(Kernel::forward, p, plan_override);
  const auto [best, cycles] = preferred(all, p);
  set_tiles(plan, *best, p, false);
  plan.seconds = seconds_of(cycles, best->kernel->tile, p.device.index);
  Arena arena;
  if (const std::int64_t splits = splits_in_memory(plan.split); splits > 1) {
    const std::int64_t rows = splits * p.batch * p.heads_q * p.len_q;
    plan.partial_out = arena.take(rows * p.dim_v);
    plan.partial_state = arena.take(rows * 2);
    load_code(combine_forward_function(plan.kind), p);
  }
  plan.workspace_bytes = arena.bytes;
  plan.tiles = text_of(*plan.kernel, plan.split);
  return plan;
}

BackwardPlan plan_backward(const AttentionProblem& p, const PlanOverride& dkdv, const PlanOverride& dq) {
  BackwardPlan plan(p);
  plan.kind = kind_of(p.dtype);
  plan.shape = shape_of(p);
  plan.accumulate = p.accumulate;
  plan.preprocess_ctas = preprocess_ctas(plan.kind, p.batch * p.heads_q, p.len_q);
  Arena arena;
  plan.lse = arena.take(p.batch * p.heads_q * p.len_q);
  plan.delta = arena.take(p.batch * p.heads_q * p.len_q);
  std::vector<TileChoice> dkdv_choices, dq_choices;
  if (p.wants_dk || p.wants_dv) dkdv_choices = tile_choices(Kernel::backward_dkdv, p, dkdv);
  if (p.wants_dq) dq_choices = tile_choices(Kernel::backward_dq, p, dq);
  // Before sm_90 the kernels are serialized.
  const bool concurrent = !dkdv_choices.empty() && !dq_choices.empty() && device_info(p.device.index).major >= 9;
  BackwardChoice both;
  if (concurrent) {
    both = fastest_pair(dkdv_choices, dq_choices, plan.kind, p.device.index);
  } else {
    if (const auto [best, cycles] = preferred(dkdv_choices, p); best != nullptr)
      both.dkdv = *best, both.cycles += cycles;
    if (const auto [best, cycles] = preferred(dq_choices, p); best != nullptr) both.dq = *best, both.cycles += cycles;
  }
  if (const KernelInstance* kernel = both.dkdv.kernel != nullptr ? both.dkdv.kernel : both.dq.kernel; kernel != nullptr)
    plan.seconds = seconds_of(both.cycles, kernel->tile, p.device.index);
  if (both.dkdv.kernel != nullptr) {
    plan.dkdv = plan_dkdv(both.dkdv, p, arena);
    plan.tiles = "dk dv: " + text_of(*plan.dkdv.kernel, plan.dkdv.split);
  }
  if (both.dq.kernel != nullptr) {
    plan.dq = plan_dq(both.dq, p, arena);
    plan.tiles += (plan.tiles.empty() ? "dq: " : "; dq: ") + text_of(*plan.dq.kernel, plan.dq.split);
  }
  load_code(preprocess_function(plan.kind), p);
  load_code(combine_gradients_function(plan.kind), p);
  plan.workspace_bytes = arena.bytes;
  return plan;
}

}  // namespace fovea::cuda::any
