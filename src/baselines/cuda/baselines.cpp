// The three entries of the list, one per form.
#include "baselines/cuda/baselines.h"

#include <algorithm>
#include <string>

#include "baselines/cuda/backward.h"
#include "baselines/cuda/forward.h"
#include "baselines/cuda/memory_plan.h"
#include "baselines/cuda/saved_states.h"
#include "baselines/saved_state.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/placement.h"
#include "cuda/runtime/workspace_pool.h"
#include "linear/cuda/matrix_library.h"

namespace fovea::cuda::baselines {
namespace {

using fovea::baselines::Form;

constexpr std::string_view kNames[] = {"naive", "vectorized", "fused"};

std::string obstacle() {
  if (std::string missing = unavailable(); !missing.empty()) return missing;
  return missing_matrix_library();
}

std::string refusal(const AttentionProblem& p) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 30;
  for (const std::int64_t size : {p.batch, p.heads_q, p.len_q, p.len_k, p.dim_qk, p.dim_v}) {
    if (size > kLongest) return "sizes up to 2^30, got " + std::to_string(size);
  }
  if (key_window(p).begin > -p.len_q) return "masks that hide no early key, since its rows all begin at key 0";
  return {};
}

std::string tiles(const AttentionProblem& p) {
  return "the whole score matrix, " + std::to_string(p.len_q) + " x " + std::to_string(p.len_k) +
         " for each batch and head";
}

template <Form form>
core::Plan plan(const AttentionProblem& p) {
  const bool is_forward = p.pass == fovea::Pass::forward;
  return {
      .workspace_bytes = is_forward ? forward_memory(form, p, nullptr).bytes : backward_memory(form, p, nullptr).bytes,
      .saved_bytes = fovea::baselines::saved_bytes(p)};
}

template <Form form>
void run_forward(const AttentionProblem& p, const ForwardTensors& t, const core::RunContext& context) {
  const CurrentDevice current(p.device.index);
  check_placements(p, t, context);
  if (p.saved_state) forget_saved(t.saved);
  forward(form, p, t, context);
  if (p.saved_state) remember_saved(p, kNames[static_cast<int>(form)], t.saved);
}

template <Form form>
void run_backward(const AttentionProblem& p, const BackwardTensors& t, const core::RunContext& context) {
  const CurrentDevice current(p.device.index);
  check_placements(p, t, context);
  const bool reads_state = p.saved_state && p.batch * p.heads_q * p.len_q * p.len_k > 0;
  if (reads_state) check_saved(p, kNames[static_cast<int>(form)], t.saved);
  backward(form, p, t, context);
}

template <Form form>
constexpr core::Implementation entry() {
  return {.name = kNames[static_cast<int>(form)],
          .device = DeviceKind::cuda,
          .automatic = false,
          .reproducible = false,  // as on the CPU, so that the name promises one thing
          .unavailable = obstacle,
          .refusal = refusal,
          .plan = plan<form>,
          .tiles = tiles,
          .forward = run_forward<form>,
          .backward = run_backward<form>,
          .allocate_workspace = allocate_workspace,
          .release_workspace = release_workspace};
}

constexpr core::Implementation kBaselines[] = {entry<Form::naive>(), entry<Form::vectorized>(), entry<Form::fused>()};

}  // namespace

std::span<const core::Implementation> implementations() { return kBaselines; }

}  // namespace fovea::cuda::baselines
