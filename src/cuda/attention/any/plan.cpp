// Tiles by head dimension and shared memory; of several that fit, the fastest by the models of split_model.h and
// pair_model.h.
#include "cuda/attention/any/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "cuda/attention/any/instances.h"
#include "cuda/attention/any/pair_model.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"

namespace fovea::cuda::any {
namespace {

constexpr std::int64_t kMaxLength = (std::int64_t{1} << 30) - 1;  // so that sums of two lengths fit an int
constexpr std::int64_t kMaxGrid = (std::int64_t{1} << 31) - 1;

// Share of the query-key pairs that the mask leaves.
double density(const AttentionProblem& p) {
  const double all = static_cast<double>(p.len_q) * static_cast<double>(p.len_k);
  return all > 0 ? static_cast<double>(visible_pairs(p)) / all : 0.0;
}

Load load_of(Kernel kernel, const KernelInstance& instance, const AttentionProblem& p) {
  const TileShape& tile = instance.tile;
  const bool of_keys = kernel == Kernel::backward_keys;
  const std::int64_t kept = of_keys ? p.len_k : p.len_q, passing = of_keys ? p.len_q : p.len_k;
  const std::int64_t heads = of_keys ? p.heads_kv : p.heads_q;
  const std::int64_t group = of_keys && p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1;
  const std::int64_t roles = instance.split_roles ? 2 : 1;
  Load load{.kernel = kernel};
  load.tiles = divide_up(kept, tile.rows()) * p.batch * heads * roles;
  load.longest = divide_up(passing, tile.block()) * group;
  load.work = density(p) * static_cast<double>(load.tiles * load.longest);
  load.products = kernel == Kernel::forward ? 2 : kernel == Kernel::backward_queries ? 3 : roles > 1 ? 2.5 : 4;
  load.result_floats = static_cast<double>(of_keys                     ? p.dim_qk + p.dim_v
                                           : kernel == Kernel::forward ? p.dim_v
                                                                       : p.dim_qk) /
                       static_cast<double>(roles);
  load.joins = of_keys ? 2 : 1;
  return load;
}

bool fits(const KernelInstance& one, std::int64_t dim, int shared_limit) {
  return one.tile.dim >= dim && one.shared_bytes <= shared_limit;
}

// Calls `with(instance)` for every instance that takes the problem: of the smallest dim, fitting shared memory. Among
// those whose warps neither share rows nor multiply together one ends the list: in forward, the first with two 16-row
// tiles a warp, in backward, the first of which several share a multiprocessor.
template <class With>
void for_each_candidate(Kernel kernel, const AttentionProblem& p, With with) {
  const std::int64_t dim = std::max(p.dim_qk, p.dim_v);
  const int limit = usable_shared_memory(p.device.index);
  int found = 0;
  for (const KernelInstance& one : instances(kernel, kind_of(p.dtype))) {
    if (!fits(one, dim, limit) || (found > 0 && one.tile.dim > found)) continue;
    with(one);
    found = one.tile.dim;
    if (one.tile.sharing > 1 || one.tile.warpgroup) continue;
    if (kernel == Kernel::forward ? one.tile.row_tiles > 1 : one.tile.resident > 1) return;
  }
}

// Hands out parts of the workspace, 256-byte aligned.
struct Arena {
  std::int64_t bytes = 0;
  std::int64_t take(std::int64_t floats) {
    const std::int64_t offset = bytes;
    bytes += divide_up(floats * 4, 256) * 256;
    return offset;
  }
};

std::vector<TileCut> tile_cuts(Kernel kernel, const AttentionProblem& p, const Forced& forced) {
  std::vector<TileCut> all;
  const auto add = [&](const KernelInstance& one) {
    const Load load = load_of(kernel, one, p);
    for (const Cut& cut : cuts_of(one, load, p.device.index, forced))
      all.push_back({.kernel = &one, .load = load, .cut = cut});
  };
  if (forced.kernel != nullptr) {
    add(*forced.kernel);
  } else {
    for_each_candidate(kernel, p, add);
  }
  return all;
}

TileCut fastest(const std::vector<TileCut>& all, const AttentionProblem& p) {
  TileCut best;
  double least = 0;
  for (const TileCut& one : all) {
    const double clocks = clocks_of(one.cut, *one.kernel, kind_of(p.dtype), one.load, p.device.index);
    if (best.kernel == nullptr || clocks < least) best = one, least = clocks;
  }
  return best;
}

Shape shape_of(const AttentionProblem& p) {
  const auto clamped = [](std::int64_t value) {
    return static_cast<int>(std::clamp<std::int64_t>(value, -kMaxLength, kMaxLength));
  };
  const KeyWindow window = key_window(p);
  const auto representable = [](double value) {
    return static_cast<float>(
        std::clamp<double>(value, std::numeric_limits<float>::min(), std::numeric_limits<float>::max()));
  };
  return {.window_begin = clamped(window.begin),
          .window_end = clamped(window.end),
          .len_q = static_cast<int>(p.len_q),
          .len_k = static_cast<int>(p.len_k),
          .dim_qk = static_cast<int>(p.dim_qk),
          .dim_v = static_cast<int>(p.dim_v),
          .scale = static_cast<float>(p.scale),
          .magnitude = representable(std::abs(p.scale)),
          .exponent_scale = representable(std::abs(p.scale) * 1.4426950408889634),
          .negate = p.scale < 0,
          .batch = static_cast<int>(p.batch),
          .heads_q = static_cast<int>(p.heads_q),
          .heads_kv = static_cast<int>(p.heads_kv),
          .group = static_cast<int>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 0)};
}

// Of tiles of `rows` queries, or keys. 16-bit elements want all tiles of a sequence together, to find its keys and
// values in the L2. fp32 makes so much of every byte that 128 rows do; the tiles with most to do under a causal mask
// then come first in all sequences, and at the end there are only short ones to wait for.
Grid grid_of(const AttentionProblem& p, bool of_keys, int rows) {
  const std::int64_t tiles = std::max<std::int64_t>(divide_up(of_keys ? p.len_k : p.len_q, rows), 1);
  const std::int64_t heads = std::max<std::int64_t>(of_keys ? p.heads_kv : p.heads_q, 1);
  const std::int64_t group = std::max<std::int64_t>(p.heads_q / std::max<std::int64_t>(p.heads_kv, 1), 1);
  const std::int64_t together = p.dtype != DType::fp32 ? tiles : rows < 128 && tiles % 2 == 0 ? 2 : 1;
  const std::int64_t turn = together * heads * std::max<std::int64_t>(p.batch, 1);
  return {.tiles = static_cast<int>(tiles),
          .heads = static_cast<int>(heads),
          .together = static_cast<int>(together),
          .turn = static_cast<unsigned>(turn),
          .by_turn = divisor(turn),
          .by_together = divisor(together),
          .by_heads = divisor(heads),
          .by_group = divisor(group)};
}

template <class Plan>
Plan plan_of(const TileCut& chosen, const AttentionProblem& p, bool of_keys) {
  Plan plan;
  plan.kernel = chosen.kernel;
  plan.split = chosen.cut.split;
  plan.grid = grid_of(p, of_keys, plan.split.rows);
  plan.shared_bytes = chosen.cut.shared_bytes;
  plan.blocks = chosen.load.tiles * plan.split.splits;
  return plan;
}

// Parts that a kernel of merge.cu joins.
std::int64_t parts_in_memory(const Split& split) { return split.in_cluster ? 1 : split.splits; }

GradientPlan plan_keys(const TileCut& chosen, const AttentionProblem& p, Arena& arena) {
  auto plan = plan_of<GradientPlan>(chosen, p, true);
  if (const std::int64_t parts = parts_in_memory(plan.split); parts > 1) {
    const std::int64_t rows = parts * p.batch * p.heads_kv * p.len_k;
    if (p.wants_dk) plan.partial_first = arena.take(rows * p.dim_qk);
    if (p.wants_dv) plan.partial_second = arena.take(rows * p.dim_v);
  }
  return plan;
}

GradientPlan plan_queries(const TileCut& chosen, const AttentionProblem& p, Arena& arena) {
  auto plan = plan_of<GradientPlan>(chosen, p, false);
  if (const std::int64_t parts = parts_in_memory(plan.split); parts > 1)
    plan.partial_first = arena.take(parts * p.batch * p.heads_q * p.len_q * p.dim_qk);
  return plan;
}

// A thread's last plans, made in turn in a few places: a call asks for its plan twice, layers of several shapes repeat,
// and a plan takes longer than all else that the host does for a call.
template <class Plan, class Make>
const Plan& remembered(const AttentionProblem& p, Make make) {
  struct Memory {
    AttentionProblem problem;
    bool made = false;
    Plan plan;
  };
  constexpr std::size_t kPlaces = 16;
  thread_local std::array<Memory, kPlaces> all;
  thread_local std::size_t last = 0;
  for (std::size_t n = 0; n < kPlaces; ++n) {
    const Memory& one = all[(last + kPlaces - n) % kPlaces];  // the latest first
    if (one.made && one.problem == p) return one.plan;
  }
  last = (last + 1) % kPlaces;
  all[last] = {.problem = p, .made = true, .plan = make()};
  return all[last].plan;
}

// A kernel's code is loaded at its first use, which takes memory of the driver's: here, before a call writes anything.
void load(const void* function, const AttentionProblem& p) { threads_allowed(function, p.device.index); }

std::string describe_tile(const KernelInstance& kernel, const Split& split) {
  const TileShape& t = kernel.tile;
  std::string text = std::to_string(t.rows()) + "x" + std::to_string(t.block()) + " of " + std::to_string(t.dim) +
                     " columns, " + std::to_string(t.warps) + " warps, " + std::to_string(kernel.shared_bytes) +
                     " bytes shared";
  if (split.in_cluster)
    text += ", clusters of " + std::to_string(split.splits);
  else if (split.splits > 1)
    text += ", " + std::to_string(split.splits) + " parts of " + std::to_string(split.blocks_per_split) + " blocks";
  return text;
}

}  // namespace

ElementKind kind_of(DType type) {
  switch (type) {
    case DType::fp32:
      return ElementKind::fp32;
    case DType::bf16:
      return ElementKind::bf16;
    case DType::fp16:
      return ElementKind::fp16;
  }
  return ElementKind::fp32;
}

std::span<const KernelInstance> instances(Kernel kernel, ElementKind kind) {
  const auto pick = [kind](auto fp32, auto bf16, auto fp16) {
    return kind == ElementKind::fp32 ? fp32() : kind == ElementKind::bf16 ? bf16() : fp16();
  };
  switch (kernel) {
    case Kernel::forward:
      return pick(forward_fp32, forward_bf16, forward_fp16);
    case Kernel::backward_keys:
      return pick(backward_keys_fp32, backward_keys_bf16, backward_keys_fp16);
    case Kernel::backward_queries:
      return pick(backward_queries_fp32, backward_queries_bf16, backward_queries_fp16);
  }
  return {};
}

std::string refusal(const AttentionProblem& p) {
  const std::int64_t dim = std::max(p.dim_qk, p.dim_v);
  if (dim > 256) return "head dimension " + std::to_string(dim) + ", takes 1 to 256";
  if (std::max(p.len_q, p.len_k) > kMaxLength)
    return "length " + std::to_string(std::max(p.len_q, p.len_k)) + ", takes up to " + std::to_string(kMaxLength);
  // The smallest tile has 32 rows, and a tile is cut into kMaxSplits parts at most, only where tiles are few.
  const std::int64_t tiles = divide_up(std::max(p.len_q, p.len_k), 32) + 1;
  if (p.batch * p.heads_q > kMaxGrid / 2 / tiles)
    return "batch x heads_q x tiles = " + std::to_string(p.batch * p.heads_q) + " x " + std::to_string(tiles) +
           ", takes up to " + std::to_string(kMaxGrid / 2);
  // Beside a GPU that runs the kernels there may be one that does not.
  if (const std::string too_old = capability_refusal(device_info(p.device.index)); !too_old.empty()) return too_old;
  const int limit = usable_shared_memory(p.device.index);
  for (const Kernel kernel : {Kernel::forward, Kernel::backward_keys, Kernel::backward_queries}) {
    const auto all = instances(kernel, kind_of(p.dtype));
    if (std::none_of(all.begin(), all.end(), [&](const auto& one) { return fits(one, dim, limit); }))
      return "no tile fits " + std::to_string(limit) + " bytes of shared memory";
  }
  return {};
}

const ForwardPlan& plan_forward(const AttentionProblem& p) {
  return remembered<ForwardPlan>(p, [&p] { return plan_forward(p, {}); });
}

const BackwardPlan& plan_backward(const AttentionProblem& p) {
  return remembered<BackwardPlan>(p, [&p] { return plan_backward(p, {}, {}); });
}

ForwardPlan plan_forward(const AttentionProblem& p, const Forced& forced) {
  auto plan = plan_of<ForwardPlan>(fastest(tile_cuts(Kernel::forward, p, forced), p), p, false);
  plan.shape = shape_of(p);
  Arena arena;
  if (const std::int64_t parts = parts_in_memory(plan.split); parts > 1) {
    const std::int64_t rows = parts * p.batch * p.heads_q * p.len_q;
    plan.partial_out = arena.take(rows * p.dim_v);
    plan.partial_state = arena.take(rows * 2);
    load(merge_forward_function(kind_of(p.dtype)), p);
  }
  plan.workspace_bytes = arena.bytes;
  return plan;
}

BackwardPlan plan_backward(const AttentionProblem& p, const Forced& keys, const Forced& queries) {
  BackwardPlan plan;
  plan.shape = shape_of(p);
  Arena arena;
  plan.lse = arena.take(p.batch * p.heads_q * p.len_q);
  plan.delta = arena.take(p.batch * p.heads_q * p.len_q);
  std::vector<TileCut> of_keys, of_queries;
  if (p.wants_dk || p.wants_dv) of_keys = tile_cuts(Kernel::backward_keys, p, keys);
  if (p.wants_dq) of_queries = tile_cuts(Kernel::backward_queries, p, queries);
  // Before sm_90 kernels follow one another; 16-bit parts are mostly clusters, which are chosen as if they ran alone.
  const bool together =
      p.dtype == DType::fp32 && !of_keys.empty() && !of_queries.empty() && device_info(p.device.index).major >= 9;
  const auto [first, second] = together ? choose_pair(of_keys, of_queries, p.device.index)
                                        : std::pair(fastest(of_keys, p), fastest(of_queries, p));
  if (first.kernel != nullptr) plan.keys = plan_keys(first, p, arena);
  if (second.kernel != nullptr) plan.queries = plan_queries(second, p, arena);
  load(statistics_function(kind_of(p.dtype)), p);
  load(sum_partials_function(kind_of(p.dtype)), p);
  plan.workspace_bytes = arena.bytes;
  return plan;
}

std::string describe(const ForwardPlan& plan) { return describe_tile(*plan.kernel, plan.split); }

std::string describe(const BackwardPlan& plan) {
  std::string text;
  if (plan.keys.kernel != nullptr) text = "dk dv: " + describe_tile(*plan.keys.kernel, plan.keys.split);
  if (plan.queries.kernel != nullptr)
    text += (text.empty() ? "" : "; ") + ("dq: " + describe_tile(*plan.queries.kernel, plan.queries.split));
  return text;
}

}  // namespace fovea::cuda::any
