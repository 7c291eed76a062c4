// Tiles by head dimension and shared memory, splits by a small model of the chip's load.
#include "cuda/any/plan.h"

#include <algorithm>
#include <cmath>

#include "cuda/any/instances.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"

namespace fovea::cuda::any {
namespace {

constexpr std::int64_t kMaxLength = (std::int64_t{1} << 30) - 1;  // so that sums of two lengths fit an int
constexpr std::int64_t kMaxGrid = (std::int64_t{1} << 31) - 1;
constexpr int kMaxSplits = 64;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

const KernelInstance* choose(Kernel kernel, const AttentionProblem& p) {
  const std::int64_t dim = std::max(p.dim_qk, p.dim_v);
  const int limit = usable_shared_memory(p.device.index);
  for (const KernelInstance& one : instances(kernel, kind_of(p.dtype))) {
    if (one.tile.dim >= dim && one.shared_bytes <= limit) return &one;
  }
  return nullptr;
}

// A tile's work is a row of blocks; together `work` blocks in `tiles` rows of up to `longest`, `capacity` of which run
// at once. Cutting the rows fills the chip and evens out a causal mask, at the price of writing and joining the parts.
Split choose_split(double work, std::int64_t tiles, std::int64_t longest, std::int64_t capacity) {
  // In units of one block's time: what a part pays to begin, and what joining costs at all and for every part.
  constexpr double kBegin = 1.0, kJoin = 2.0, kJoinPart = 0.1;
  const bool even = work >= 0.99 * static_cast<double>(tiles * longest);
  Split best;
  if (tiles >= 4 * capacity) return best;
  double best_time = 0;
  for (std::int64_t splits = 1; splits <= std::min<std::int64_t>(kMaxSplits, longest); ++splits) {
    const std::int64_t part = divide_up(longest, splits);
    if (splits > 1 && divide_up(longest, part) != splits) continue;
    const double each = static_cast<double>(part) + kBegin;
    const auto full = static_cast<double>(capacity);
    const double parts = even ? static_cast<double>(tiles * splits)
                              : work / static_cast<double>(part) + 0.5 * static_cast<double>(tiles);
    double time = even ? std::ceil(parts / full) * each : std::max(each, (work + parts * kBegin) / full + 0.5 * each);
    if (splits > 1) time += kJoin + kJoinPart * static_cast<double>(splits);
    if (splits == 1 || time < best_time) {
      best_time = time;
      best = {static_cast<int>(splits), static_cast<int>(part)};
    }
  }
  return best;
}

std::int64_t capacity_of(const KernelInstance& kernel, int device) {
  const CurrentDevice current(device);
  return static_cast<std::int64_t>(device_info(device).multiprocessors) *
         resident_blocks(kernel.function, kernel.tile.threads(), kernel.shared_bytes, device);
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

// Share of the query-key pairs that the mask leaves.
double density(const AttentionProblem& p) {
  const double all = static_cast<double>(p.len_q) * static_cast<double>(p.len_k);
  return all > 0 ? static_cast<double>(visible_pairs(p)) / all : 0.0;
}

GradientPlan plan_keys(const AttentionProblem& p, Arena& arena) {
  GradientPlan plan;
  plan.kernel = choose(Kernel::backward_keys, p);
  const TileShape& tile = plan.kernel->tile;
  const std::int64_t roles = plan.kernel->split_roles ? 2 : 1;
  const std::int64_t tiles = divide_up(p.len_k, tile.rows()) * p.batch * p.heads_kv * roles;
  const std::int64_t group = p.heads_kv > 0 ? p.heads_q / p.heads_kv : 0;
  const std::int64_t longest = divide_up(p.len_q, tile.stream) * group;
  const double work = density(p) * static_cast<double>(tiles * longest);
  plan.split = choose_split(work, tiles, longest, capacity_of(*plan.kernel, p.device.index));
  plan.blocks = tiles * plan.split.splits;
  if (plan.split.splits > 1) {
    const std::int64_t rows = plan.split.splits * p.batch * p.heads_kv * p.len_k;
    if (p.wants_dk) plan.partial_first = arena.take(rows * p.dim_qk);
    if (p.wants_dv) plan.partial_second = arena.take(rows * p.dim_v);
  }
  return plan;
}

GradientPlan plan_queries(const AttentionProblem& p, Arena& arena) {
  GradientPlan plan;
  plan.kernel = choose(Kernel::backward_queries, p);
  const TileShape& tile = plan.kernel->tile;
  const std::int64_t tiles = divide_up(p.len_q, tile.rows()) * p.batch * p.heads_q;
  const std::int64_t longest = divide_up(p.len_k, tile.stream);
  const double work = density(p) * static_cast<double>(tiles * longest);
  plan.split = choose_split(work, tiles, longest, capacity_of(*plan.kernel, p.device.index));
  plan.blocks = tiles * plan.split.splits;
  if (plan.split.splits > 1)
    plan.partial_first = arena.take(plan.split.splits * p.batch * p.heads_q * p.len_q * p.dim_qk);
  return plan;
}

std::string describe_tile(const KernelInstance& kernel, const Split& split) {
  const TileShape& t = kernel.tile;
  std::string text = std::to_string(t.rows()) + "x" + std::to_string(t.stream) + " of " + std::to_string(t.dim) +
                     " columns, " + std::to_string(t.warps) + " warps, " + std::to_string(kernel.shared_bytes) +
                     " bytes shared";
  if (split.splits > 1)
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

Shape shape_of(const AttentionProblem& p) {
  const auto clamped = [](std::int64_t value) {
    return static_cast<int>(std::clamp<std::int64_t>(value, -kMaxLength, kMaxLength));
  };
  const KeyWindow window = key_window(p);
  const auto representable = [](double value) {
    return static_cast<float>(
        std::clamp<double>(value, std::numeric_limits<float>::min(), std::numeric_limits<float>::max()));
  };
  return {.batch = static_cast<int>(p.batch),
          .heads_q = static_cast<int>(p.heads_q),
          .heads_kv = static_cast<int>(p.heads_kv),
          .group = static_cast<int>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 0),
          .len_q = static_cast<int>(p.len_q),
          .len_k = static_cast<int>(p.len_k),
          .dim_qk = static_cast<int>(p.dim_qk),
          .dim_v = static_cast<int>(p.dim_v),
          .window_begin = clamped(window.begin),
          .window_end = clamped(window.end),
          .scale = static_cast<float>(p.scale),
          .magnitude = representable(std::abs(p.scale)),
          .exponent_scale = representable(std::abs(p.scale) * 1.4426950408889634),
          .negate = p.scale < 0};
}

std::string refusal(const AttentionProblem& p) {
  if (std::max(p.dim_qk, p.dim_v) > 256)
    return "head dimension " + std::to_string(std::max(p.dim_qk, p.dim_v)) + ", takes 1 to 256";
  if (std::max(p.len_q, p.len_k) > kMaxLength)
    return "length " + std::to_string(std::max(p.len_q, p.len_k)) + ", takes up to " + std::to_string(kMaxLength);
  // The smallest tile has 32 rows, and a tile is cut into kMaxSplits parts at most, only where tiles are few.
  const std::int64_t tiles = divide_up(std::max(p.len_q, p.len_k), 32) + 1;
  if (p.batch * p.heads_q > kMaxGrid / 2 / tiles)
    return "batch x heads_q x tiles = " + std::to_string(p.batch * p.heads_q) + " x " + std::to_string(tiles) +
           ", takes up to " + std::to_string(kMaxGrid / 2);
  for (const Kernel kernel : {Kernel::forward, Kernel::backward_keys, Kernel::backward_queries}) {
    if (choose(kernel, p) == nullptr)
      return "no tile fits " + std::to_string(usable_shared_memory(p.device.index)) + " bytes of shared memory";
  }
  return {};
}

ForwardPlan plan_forward(const AttentionProblem& p) {
  ForwardPlan plan;
  Arena arena;
  plan.kernel = choose(Kernel::forward, p);
  const TileShape& tile = plan.kernel->tile;
  const std::int64_t rows = p.batch * p.heads_q * p.len_q;
  const std::int64_t tiles = divide_up(p.len_q, tile.rows()) * p.batch * p.heads_q;
  const std::int64_t longest = divide_up(p.len_k, tile.stream);
  const double work = density(p) * static_cast<double>(tiles * longest);
  plan.split = choose_split(work, tiles, longest, capacity_of(*plan.kernel, p.device.index));
  plan.blocks = tiles * plan.split.splits;
  if (plan.split.splits > 1) {
    plan.partial_out = arena.take(plan.split.splits * rows * p.dim_v);
    plan.partial_state = arena.take(plan.split.splits * rows * 2);
  }
  plan.workspace_bytes = arena.bytes;
  return plan;
}

BackwardPlan plan_backward(const AttentionProblem& p) {
  BackwardPlan plan;
  Arena arena;
  plan.lse = arena.take(p.batch * p.heads_q * p.len_q);
  plan.delta = arena.take(p.batch * p.heads_q * p.len_q);
  if (p.wants_dk || p.wants_dv) plan.keys = plan_keys(p, arena);
  if (p.wants_dq) plan.queries = plan_queries(p, arena);
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
