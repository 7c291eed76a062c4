// Forward: chooses the kernel instance, packed heads, splits and the order of tiles by predicted time. The refusals
// that forward and backward share are here too.
#include "cuda/attention/sm90/plan.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "attention/scale.h"
#include "cuda/attention/problem_shape.h"
#include "cuda/attention/sm90/estimate.h"
#include "cuda/attention/sm90/instances.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/tensor_refs.h"

namespace fovea::cuda::sm90 {
namespace {

constexpr std::int64_t kMaxDim = 256;
constexpr std::int64_t kSectionBytes = 32 << 20;  // K and V that stay in the L2 cache beside all else
constexpr std::int64_t kShortSectionHeads = 32;   // query heads of a section, up to 128 columns of V

bool fits(const AttentionProblem& p, const ForwardInstance& one, int shared_limit) {
  return p.dim_qk <= one.tile.dim_qk && p.dim_v <= one.tile.dim_v && one.shared_bytes <= shared_limit;
}

// Tries an instance with every number of splits worth considering: two and more only below two query tiles per SM, and
// no number that would leave a split of the longest query tile without K/V tiles. Shorter tiles may have such splits.
void try_splits(ForwardChoice& best, const AttentionProblem& p, const ForwardInstance& one, std::int64_t packed_heads,
                int sms) {
  const Visits visits = visits_of(p, one.tile, packed_heads);
  const std::int64_t most = visits.tiles >= 2 * sms ? 1 : std::min<std::int64_t>(any::kMaxSplits, visits.longest);
  for (std::int64_t splits = 1; splits == 1 || splits <= most; ++splits) {
    if (splits > 1 && divide_up(visits.longest, divide_up(visits.longest, splits)) != splits) continue;
    const Division division{.packed_heads = packed_heads, .splits = splits};
    const double seconds = seconds_of(p, one, division, visits, sms, best.seconds);
    if (seconds < best.seconds) best = {&one, division, seconds};
  }
}

// Tries clusters below one query tile per SM.
void try_clusters(ForwardChoice& best, const AttentionProblem& p, const ForwardInstance& one, std::int64_t packed_heads,
                  int sms) {
  const Visits visits = visits_of(p, one.tile, packed_heads);
  if (visits.tiles >= sms) return;
  const int threads = one.tile.threads(), device = p.device.index;
  resident_ctas(one.function, threads, one.shared_bytes, device);  // raises the kernel's limit of shared memory
  for (int splits = 2; splits <= std::min<std::int64_t>(kMaxCluster, visits.longest); ++splits) {
    const int resident = resident_clusters(one.function, threads, one.shared_bytes, splits, device);
    if (resident == 0) continue;
    const Division division{.packed_heads = packed_heads, .splits = splits, .in_cluster = true, .resident = resident};
    const double seconds = seconds_of(p, one, division, visits, sms, best.seconds);
    if (seconds < best.seconds) best = {&one, division, seconds};
  }
}

// The fastest instance by prediction; null if none fits.
ForwardChoice choice_for(const AttentionProblem& p, int sms, int shared_limit) {
  const std::int64_t group = p.heads_q / p.heads_kv;
  ForwardChoice best;
  for (const ForwardInstance& one : p.dtype == DType::bf16 ? forward_bf16() : forward_fp16()) {
    if (!fits(p, one, shared_limit)) continue;
    for (const std::int64_t heads : {std::int64_t{1}, group}) {
      if (heads > one.tile.rows()) continue;
      try_splits(best, p, one, heads, sms);
      try_clusters(best, p, one, heads, sms);
      if (group == 1) break;
    }
  }
  return best;
}

std::string dim_refusal(std::string_view name, std::int64_t dim, std::int64_t max_dim) {
  if (dim <= max_dim && dim % 8 == 0) return {};
  return std::string(name) + " = " + std::to_string(dim) + ", takes multiples of 8 up to " + std::to_string(max_dim);
}

// TMA wants strides that are multiples of 16 bytes, and at least one element in every dimension.
std::string size_refusal(const AttentionProblem& p, std::int64_t max_dim) {
  if (std::min({p.batch, p.heads_q, p.heads_kv, p.len_q, p.len_k}) == 0) return "a size is 0, takes 1 and more";
  if (std::string reason = dim_refusal("dim_qk", p.dim_qk, max_dim); !reason.empty()) return reason;
  if (std::string reason = dim_refusal("dim_v", p.dim_v, max_dim); !reason.empty()) return reason;
  if (std::max(p.len_q, p.len_k) > kMaxLength)
    return "length " + std::to_string(std::max(p.len_q, p.len_k)) + ", takes up to " + std::to_string(kMaxLength);
  // One more: backward pads a sequence to whole query tiles, which may have 128 rows.
  const std::int64_t tiles = divide_up(p.len_q, kWarpgroupRows), most = kMaxNumbers / (tiles + 1);
  if (p.heads_q <= most && p.batch <= most / p.heads_q) return {};
  return "batch x heads_q x (tiles + 1) = " + std::to_string(p.batch) + " x " + std::to_string(p.heads_q) + " x (" +
         std::to_string(tiles) + " + 1), takes up to " + std::to_string(kMaxNumbers);
}

// As many sequences as have K and V of at most kSectionBytes. Up to 128 columns of V also at most kShortSectionHeads
// query heads, or one group: then the results of short sequences stay in the L2 cache too.
std::int64_t section_sequences_of(const AttentionProblem& p, std::int64_t packed_heads) {
  const std::int64_t bytes = p.len_k * (p.dim_qk + p.dim_v) * 2, group = p.heads_q / p.heads_kv;
  const std::int64_t fit = std::max<std::int64_t>(kSectionBytes / bytes, 1) * group;
  return (p.dim_v > 128 ? fit : std::min(fit, std::max(kShortSectionHeads, group))) / packed_heads;
}

// Prefetched K and V must stay in the L2 cache for the time of a query tile: those of the key heads that `ctas` query
// tiles read together.
bool prefetches_fit(const AttentionProblem& p, std::int64_t q_tiles, std::int64_t ctas) {
  return divide_up(ctas, q_tiles) * p.len_k * (p.dim_qk + p.dim_v) * 2 <= kSectionBytes;
}

// Equally long tiles go head by head, and a thread block takes every gridDim.x-th. Otherwise long tiles come first
// within a section, and thread blocks take the next one from a counter.
TileOrder order_of(const AttentionProblem& p, const ForwardChoice& choice, bool equal, int sms) {
  const auto [packed_heads, splits, in_cluster, resident] = choice.division;
  const std::int64_t q_tiles = divide_up(p.len_q, choice.kernel->tile.rows() / packed_heads);
  const std::int64_t sequences = p.batch * p.heads_q / packed_heads;
  return {.q_tiles = static_cast<int>(q_tiles),
          .sequences = static_cast<int>(sequences),
          .section_sequences = equal ? 1 : static_cast<int>(std::min(section_sequences_of(p, packed_heads), sequences)),
          .numbers = static_cast<int>(q_tiles * sequences * splits),
          .prefetches = equal && splits == 1 && prefetches_fit(p, q_tiles, sms)};
}

RowPacking packing_of(const ForwardChoice& choice) {
  const std::int64_t heads = choice.division.packed_heads;
  return {.heads = static_cast<int>(heads),
          .queries = static_cast<int>(choice.kernel->tile.rows() / heads),
          .heads_divmod = fast_divmod(heads)};
}

// Keys would be lost if `longest` were too small. It is exact up to 1,024 query tiles of a sequence; plans with more
// have no splits.
any::Split split_of(const ForwardChoice& choice, const Visits& visits) {
  const auto [packed_heads, splits, in_cluster, resident] = choice.division;
  const ForwardTile& tile = choice.kernel->tile;
  return {.splits_divmod = fast_divmod(splits),
          .splits = static_cast<int>(splits),
          .tiles_per_split = static_cast<int>(divide_up(visits.longest, splits)),
          .rows = static_cast<std::int16_t>(tile.rows() / packed_heads),
          .streamed_rows = static_cast<std::int16_t>(tile.keys),
          .in_cluster = in_cluster};
}

// The counter, and behind it the partials of splits that combine in memory.
void lay_out_workspace(ForwardPlan& plan, const AttentionProblem& p) {
  constexpr std::int64_t kCounterBytes = 256;
  plan.workspace_bytes = plan.has_counter ? kCounterBytes : 0;
  if (!plan.combines_in_memory()) return;
  const std::int64_t rows = plan.split.splits * p.batch * p.heads_q * p.len_q;
  plan.partial_out = plan.workspace_bytes;
  plan.partial_state = plan.partial_out + divide_up(rows * p.dim_v * 4, 256) * 256;
  plan.workspace_bytes = plan.partial_state + rows * static_cast<std::int64_t>(sizeof(any::PartialState));
}

std::string text_of(const ForwardPlan& plan) {
  const ForwardTile& tile = plan.kernel->tile;
  std::string text = std::to_string(tile.rows()) + "x" + std::to_string(tile.keys) + " of " +
                     std::to_string(tile.dim_qk) + " columns, " + std::to_string(tile.warpgroups) +
                     (tile.warpgroups == 1 ? " consumer warpgroup, " : " consumer warpgroups, ") +
                     std::to_string(plan.kernel->shared_bytes) + " bytes shared, " + std::to_string(plan.ctas) +
                     (plan.split.in_cluster ? " thread blocks" : " persistent thread blocks");
  if (plan.packing.heads > 1) text += ", rows of " + std::to_string(plan.packing.heads) + " heads in a tile";
  if (plan.split.in_cluster) return text + ", clusters of " + std::to_string(plan.split.splits);
  if (plan.split.splits > 1)
    text += ", " + std::to_string(plan.split.splits) + " splits of " + std::to_string(plan.split.tiles_per_split) +
            " tiles";
  return text;
}

// Loads the kernels' code, which may allocate driver memory, before a call writes anything; and lets the forward kernel
// use its shared memory.
void load_kernels(const ForwardPlan& plan) {
  const ForwardInstance& kernel = *plan.kernel;
  resident_ctas(kernel.function, kernel.tile.threads(), kernel.shared_bytes, plan.device.index);
  if (plan.combines_in_memory())
    threads_allowed(any::combine_forward_function(kind_of(plan.problem.dtype)), plan.device.index);
}

}  // namespace

std::string refusal(const AttentionProblem& p, std::int64_t max_dim) {
  if (p.dtype == DType::fp32) return "dtype fp32, takes bf16 and fp16";
  if (p.unaligned)
    return "q, k, v or dout unaligned, takes rows that start at multiples of 16 bytes and strides from 16 to below "
           "2^40 bytes";
  if (p.scale <= 0) return "scale " + std::to_string(p.scale) + ", takes positive scales";
  if (std::string reason = attention::scale_refusal(p.scale); !reason.empty()) return reason;
  if (std::string reason = size_refusal(p, max_dim); !reason.empty()) return reason;
  const DeviceInfo& device = device_info(p.device.index);
  if (device.major != 9 || device.minor != 0)
    return device.name + " has compute capability " + std::to_string(device.major) + "." +
           std::to_string(device.minor) + ", runs on 9.0 only";
  return {};
}

std::string code_refusal(const void* function, const AttentionProblem& p) {
  if (has_code(function, p.device.index)) return {};
  return "the driver was told to compile PTX (CUDA_FORCE_PTX_JIT), and these kernels are machine code only";
}

std::shared_ptr<ForwardPlan> plan_forward(const AttentionProblem& p, const ForwardChoice& choice, int sms) {
  auto plan = std::make_shared<ForwardPlan>(p);
  plan->shape = shape_of(p);
  plan->kernel = choice.kernel;
  plan->seconds = cold_seconds(choice.division, choice.seconds);
  const Visits visits = visits_of(p, plan->kernel->tile, choice.division.packed_heads);
  plan->packing = packing_of(choice);
  plan->split = split_of(choice, visits);
  plan->order = order_of(p, choice, visits.equal(), sms);
  // A thread block of a cluster has one tile.
  plan->ctas = plan->split.in_cluster ? plan->order.numbers : std::min<std::int64_t>(plan->order.numbers, sms);
  plan->has_counter = !visits.equal() && plan->order.numbers > plan->ctas;
  lay_out_workspace(*plan, p);
  plan->tiles = text_of(*plan);
  load_kernels(*plan);
  return plan;
}

core::Prepared prepare(const AttentionProblem& p, int) {
  if (p.pass == Pass::backward) return prepare_backward(p);
  if (std::string reason = refusal(p, kMaxDim); !reason.empty()) return {.refusal = std::move(reason)};
  const int sms = device_info(p.device.index).sm_count, limit = usable_shared_memory(p.device.index);
  const ForwardChoice choice = choice_for(p, sms, limit);
  if (choice.kernel == nullptr) return {.refusal = "no tile fits " + std::to_string(limit) + " bytes of shared memory"};
  if (std::string reason = code_refusal(choice.kernel->function, p); !reason.empty())
    return {.refusal = std::move(reason)};
  return {.plan = plan_forward(p, choice, sms)};
}

}  // namespace fovea::cuda::sm90
