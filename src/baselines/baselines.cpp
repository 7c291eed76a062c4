// The three entries of the list, one per form.
#include "baselines/baselines.h"

#include <algorithm>
#include <string>

#include "baselines/backward.h"
#include "baselines/forward.h"
#include "baselines/memory_plan.h"
#include "baselines/saved_state.h"
#include "linear/blas/blas.h"

namespace fovea::baselines {
namespace {

constexpr std::string_view kNames[] = {"naive", "vectorized", "fused"};

std::string refusal(const AttentionProblem& p) {
  const std::int64_t longest = std::max(p.len_q, p.len_k);
  if (longest > linear::blas::kLargestSize)
    return "the matrix libraries take lengths below 2^31, got " + std::to_string(longest);
  return {};
}

std::string tiles(const AttentionProblem& p) {
  return "the whole score matrix, " + std::to_string(p.len_q) + " x " + std::to_string(p.len_k) +
         " for each batch and head";
}

core::Plan plan(const AttentionProblem& p) {
  const bool is_forward = p.pass == Pass::forward;
  return {.workspace_bytes = is_forward ? forward_memory(p, nullptr).bytes : backward_memory(p, nullptr).bytes,
          .saved_bytes = saved_bytes(p)};
}

template <Form form>
void run_forward(const AttentionProblem& p, const ForwardTensors& tensors, const core::RunContext& context) {
  if (p.saved_state) invalidate_saved_header(tensors.saved);
  forward(form, p, tensors, context);
  if (p.saved_state) write_saved_header(p, kNames[static_cast<int>(form)], tensors.saved);
}

template <Form form>
void run_backward(const AttentionProblem& p, const BackwardTensors& tensors, const core::RunContext& context) {
  const bool reads_state = p.saved_state && p.batch * p.heads_q * p.len_q * p.len_k > 0;
  if (reads_state) check_saved_header(p, kNames[static_cast<int>(form)], tensors.saved);
  backward(form, p, tensors, context);
}

template <Form form>
constexpr core::Implementation entry() {
  return {.name = kNames[static_cast<int>(form)],
          .device = DeviceKind::cpu,
          .automatic = false,
          .reproducible = false,  // the libraries promise nothing
          .unavailable = linear::blas::unavailable,
          .refusal = refusal,
          .plan = plan,
          .tiles = tiles,
          .forward = run_forward<form>,
          .backward = run_backward<form>};
}

constexpr core::Implementation kBaselines[] = {entry<Form::naive>(), entry<Form::vectorized>(), entry<Form::fused>()};

}  // namespace

std::span<const core::Implementation> implementations() { return kBaselines; }

}  // namespace fovea::baselines
