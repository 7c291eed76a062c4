// Backward: chooses the kernel instance and the order of key tiles, and lays out the workspace.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "cuda/attention/problem_shape.h"
#include "cuda/attention/sm90/backward_estimate.h"
#include "cuda/attention/sm90/instances.h"
#include "cuda/attention/sm90/plan.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"

namespace fovea::cuda::sm90 {
namespace {

constexpr std::int64_t kMaxBackwardDim = 128;
constexpr std::int64_t kSectionBytes = 32 << 20;  // sums of dQ that stay in the L2 cache beside all else

// The most sequences of a section. Key tiles of one sequence wait for each other, those of several do not. These
// numbers were the fastest (docs/kernels/sm90_backward_notebook.md, step 3).
std::int64_t most_of_section(const BackwardInstance& kernel) { return kernel.dim == 64 ? 64 : 16; }

const BackwardInstance& instance_for(const AttentionProblem& p) {
  const auto all = p.dtype == DType::bf16 ? backward_bf16() : backward_fp16();
  return *std::find_if(all.begin(), all.end(),
                       [&](const BackwardInstance& one) { return std::max(p.dim_qk, p.dim_v) <= one.dim; });
}

std::string backward_refusal(const AttentionProblem& p) {
  if (std::string reason = refusal(p, kMaxTwoPassDim); !reason.empty()) return reason;
  const std::int64_t key_tiles = divide_up(p.len_k, kKeys);
  if (p.batch > kMaxNumbers / key_tiles / p.heads_kv)
    return "batch x heads_kv x tiles = " + std::to_string(p.batch) + " x " + std::to_string(p.heads_kv) + " x " +
           std::to_string(key_tiles) + ", takes up to " + std::to_string(kMaxNumbers);
  const BackwardInstance& kernel = instance_for(p);
  const int limit = usable_shared_memory(p.device.index);
  if (kernel.shared_bytes > limit)
    return "a thread block takes " + std::to_string(kernel.shared_bytes) + " bytes of shared memory, " +
           std::to_string(limit) + " may be used";
  return {};
}

// The ring keeps key tiles steps apart, and needs every key tile to visit every query tile. Its key tiles wait for
// later ones of their sequence, so all of them must be resident at once, one per SM. At most half of the SMs leaves
// room beside one ring of another stream. Three rings of three priorities can still deadlock
// (docs/kernels/sm90_backward.md, "The order of dQ").
KeyTileOrder order_of(const AttentionProblem& p, const BackwardInstance& kernel, std::int64_t heads, int sms) {
  const std::int64_t query_tiles = divide_up(p.len_q, kernel.queries), key_tiles = divide_up(p.len_k, kKeys);
  const KeyWindow window = key_window(p);
  const bool all_visible = window.begin <= 1 - p.len_q && window.end >= p.len_k;
  const std::int64_t splits = divide_up(p.heads_q / p.heads_kv, heads), sequences = p.batch * p.heads_kv * splits;
  const bool ring = all_visible && key_tiles <= sms / 2;
  const std::int64_t section = std::max<std::int64_t>(kSectionBytes / (p.len_q * kernel.dim * 4), 1);
  return {.query_tiles = static_cast<int>(query_tiles),
          .key_tiles = static_cast<int>(key_tiles),
          .splits = static_cast<int>(splits),
          .heads = static_cast<int>(heads),
          .sequences = static_cast<int>(sequences),
          .section = ring ? 1 : static_cast<int>(std::min({section, most_of_section(kernel), sequences})),
          .schedule = ring ? Schedule::ring : Schedule::ascending};
}

// Sets the order with the smallest predicted time. With one thread block per key tile, few key heads or a causal mask
// can leave SMs idle. Splits of the group's query heads fill them, and cost partials of dK and dV, and a combine.
// Beyond kMostWaves thread blocks per SM they win nothing.
void choose_order(BackwardPlan& plan, const AttentionProblem& p, int sms) {
  constexpr std::int64_t kMostWaves = 2;
  const std::int64_t group = p.heads_q / p.heads_kv, tiles = p.batch * p.heads_kv * divide_up(p.len_k, kKeys);
  const std::int64_t most = p.wants_dk || p.wants_dv
                                ? std::clamp(kMostWaves * sms / tiles, std::int64_t{1}, std::int64_t{any::kMaxSplits})
                                : 1;
  for (std::int64_t splits = 1; splits <= std::min(most, group); ++splits) {
    const KeyTileOrder order = order_of(p, *plan.kernel, divide_up(group, splits), sms);
    const double seconds = seconds_of(p, *plan.kernel, order, sms);
    if (splits > 1 && seconds >= plan.seconds) continue;
    plan.order = order;
    plan.seconds = seconds;
  }
}

// Arrays of the workspace, each at a multiple of 256 bytes.
void lay_out(BackwardPlan& plan, const AttentionProblem& p) {
  const auto take = [&plan](std::int64_t words) {
    const std::int64_t offset = plan.workspace_bytes;
    plan.workspace_bytes += divide_up(words * 4, 256) * 256;
    return offset;
  };
  const std::int64_t query_tiles = p.batch * p.heads_q * plan.order.query_tiles;  // of all sequences
  plan.lse = take(query_tiles * plan.kernel->queries);
  plan.delta = take(query_tiles * plan.kernel->queries);
  plan.turns = take(query_tiles * kKeyWarpgroups);
  plan.dq_sum = take(p.wants_dq && plan.order.key_tiles > 1 ? query_tiles * kKeyWarpgroups * kHalfFloats : 0);
  const std::int64_t partial_rows = plan.order.splits > 1 ? plan.order.sequences * p.len_k : 0;
  plan.partial_dk = take(p.wants_dk ? partial_rows * p.dim_qk : 0);
  plan.partial_dv = take(p.wants_dv ? partial_rows * p.dim_v : 0);
}

}  // namespace

core::Prepared prepare_backward(const AttentionProblem& p) {
  if (std::max(p.dim_qk, p.dim_v) > kMaxBackwardDim) return prepare_two_pass(p);
  if (std::string reason = backward_refusal(p); !reason.empty()) return {.refusal = std::move(reason)};
  const int device = p.device.index, sms = device_info(device).sm_count;
  if (std::string reason = code_refusal(instance_for(p).function, p); !reason.empty())
    return {.refusal = std::move(reason)};
  auto plan = std::make_shared<BackwardPlan>(p);
  plan->shape = shape_of(p);
  plan->kernel = &instance_for(p);
  plan->accumulate = p.accumulate;
  choose_order(*plan, p, sms);
  plan->ctas = std::int64_t{plan->order.sequences} * plan->order.key_tiles;
  const std::int64_t rows = p.batch * p.heads_q * plan->order.query_tiles * plan->kernel->queries;
  plan->preprocess_ctas = divide_up(rows * 2, kPreprocessThreads);  // a warp per 16 rows
  lay_out(*plan, p);
  // Loads the code of both kernels, which may allocate driver memory, before a call writes anything.
  resident_ctas(plan->kernel->function, kBackwardThreads, plan->kernel->shared_bytes, device);
  threads_allowed(plan->kernel->preprocess, device);
  plan->tiles =
      std::to_string(plan->kernel->queries) + "x" + std::to_string(kKeys) + " of " + std::to_string(plan->kernel->dim) +
      " columns, " + std::to_string(kKeyWarpgroups) + " key warpgroups, " + std::to_string(plan->kernel->shared_bytes) +
      " bytes shared, " +
      (plan->order.schedule == Schedule::ring ? "ring" : "sections of " + std::to_string(plan->order.section)) +
      (plan->order.splits == 1 ? "" : ", " + std::to_string(plan->order.splits) + " splits of a group's query heads");
  return {.plan = std::move(plan)};
}

}  // namespace fovea::cuda::sm90
