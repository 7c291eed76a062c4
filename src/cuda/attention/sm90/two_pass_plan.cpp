// Backward in two passes: chooses the kernels and the order of tiles, and lays out the workspace.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "cuda/attention/problem_shape.h"
#include "cuda/attention/sm90/instances.h"
#include "cuda/attention/sm90/plan.h"
#include "cuda/attention/sm90/two_pass_estimate.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"

namespace fovea::cuda::sm90 {
namespace {

constexpr std::int64_t kSectionBytes = 32 << 20;  // streamed tensors that stay in the L2 cache beside all else

const TwoPassInstance& instance_for(const AttentionProblem& p) {
  const auto all = p.dtype == DType::bf16 ? two_pass_bf16() : two_pass_fp16();
  return *std::find_if(all.begin(), all.end(),
                       [&](const TwoPassInstance& one) { return p.dim_qk <= one.dim_qk && p.dim_v <= one.dim_v; });
}

std::string two_pass_refusal(const AttentionProblem& p) {
  if (std::string reason = refusal(p, kMaxTwoPassDim); !reason.empty()) return reason;
  const std::int64_t tiles = divide_up(p.len_k, kTwoPassRows);
  if (p.batch > kMaxNumbers / tiles / p.heads_kv)
    return "batch x heads_kv x tiles = " + std::to_string(p.batch) + " x " + std::to_string(p.heads_kv) + " x " +
           std::to_string(tiles) + ", takes up to " + std::to_string(kMaxNumbers);
  const TwoPassInstance& kernels = instance_for(p);
  const int bytes = std::max(kernels.dkdv_shared_bytes, kernels.dq_shared_bytes);
  const int limit = usable_shared_memory(p.device.index);
  if (bytes > limit)
    return "a thread block takes " + std::to_string(bytes) + " bytes of shared memory, " + std::to_string(limit) +
           " may be used";
  return {};
}

// Without a mask all thread blocks of a sequence run together. With one, long tiles come first within a section.
// `streamed_rows`: of the tensors that a sequence's thread blocks stream.
TilesOfSequences order_of(const AttentionProblem& p, std::int64_t tiles, std::int64_t sequences,
                          std::int64_t streamed_rows) {
  const KeyWindow window = key_window(p);
  const bool all_visible = window.begin <= 1 - p.len_q && window.end >= p.len_k;
  const std::int64_t section = std::max<std::int64_t>(kSectionBytes / (streamed_rows * (p.dim_qk + p.dim_v) * 2), 1);
  return {.tiles = static_cast<int>(tiles),
          .sequences = static_cast<int>(sequences),
          .section = all_visible ? 1 : static_cast<int>(std::min(section, sequences))};
}

// Arrays of the workspace, each at a multiple of 256 bytes: lse, delta.
void lay_out(TwoPassPlan& plan, const AttentionProblem& p) {
  const std::int64_t bytes = p.batch * p.heads_q * plan.query_tiles * kTwoPassRows * 4;  // a multiple of 256
  plan.delta = bytes;
  plan.workspace_bytes = 2 * bytes;
}

std::string text_of(const TwoPassInstance& kernels) {
  const std::string columns =
      std::to_string(kernels.dim_qk) +
      (kernels.dim_v == kernels.dim_qk ? std::string() : " and " + std::to_string(kernels.dim_v));
  const std::string rows = std::to_string(kTwoPassRows);
  return "two passes: dK and dV " + rows + "x" + rows + ", dQ " + std::to_string(kDqRows) + "x" + rows + " of " +
         columns + " columns, 2 warpgroups, " + std::to_string(kernels.dkdv_shared_bytes) + " and " +
         std::to_string(kernels.dq_shared_bytes) + " bytes shared";
}

}  // namespace

core::Prepared prepare_two_pass(const AttentionProblem& p) {
  if (std::string reason = two_pass_refusal(p); !reason.empty()) return {.refusal = std::move(reason)};
  const TwoPassInstance& kernels = instance_for(p);
  if (std::string reason = code_refusal(kernels.dkdv, p); !reason.empty()) return {.refusal = std::move(reason)};
  const int device = p.device.index;
  auto plan = std::make_shared<TwoPassPlan>(p);
  plan->shape = shape_of(p);
  plan->kernels = &kernels;
  plan->accumulate = p.accumulate;
  plan->query_tiles = static_cast<int>(divide_up(p.len_q, kTwoPassRows));
  const std::int64_t group = p.heads_q / p.heads_kv;
  plan->dkdv = order_of(p, divide_up(p.len_k, kTwoPassRows), p.batch * p.heads_kv, p.len_q * group);
  plan->dq = order_of(p, divide_up(p.len_q, kDqRows), p.batch * p.heads_q, p.len_k);
  plan->seconds = seconds_of(p, kernels, device_info(device).sm_count);
  plan->preprocess_ctas = divide_up(p.batch * p.heads_q * plan->query_tiles * kTwoPassRows * 2, kPreprocessThreads);
  lay_out(*plan, p);
  // Loads the code of all kernels, which may allocate driver memory, before a call writes anything.
  resident_ctas(kernels.dkdv, kTwoPassThreads, kernels.dkdv_shared_bytes, device);
  resident_ctas(kernels.dq, kTwoPassThreads, kernels.dq_shared_bytes, device);
  threads_allowed(kernels.preprocess, device);
  plan->tiles = text_of(kernels);
  return {.plan = std::move(plan)};
}

}  // namespace fovea::cuda::sm90
