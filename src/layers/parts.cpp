// Which gradients flow, and the problems of the parts.
#include "layers/parts.h"

#include <algorithm>

namespace fovea::layers {
namespace {

std::int64_t len_of(const LayerProblem& p, const Step& step) { return step.of_keys ? p.len_k : p.len_q; }

bool needs_any(const LayerProblem& p, const Steps& steps, std::initializer_list<Slot> slots) {
  return std::ranges::any_of(steps, [&](const Step& step) {
    return std::ranges::find(slots, step.slot) != slots.end() && needs_result_gradient(p, steps, step);
  });
}

}  // namespace

bool needs_result_gradient(const LayerProblem& p, const Steps& steps, const Step& step) {
  const ProjectionFacts& facts = at(p.projections, step.slot);
  return facts.wants_dweight || facts.wants_dbias || needs_gradient(p, steps, step.source);
}

bool needs_gradient(const LayerProblem& p, const Steps& steps, Source source) {
  switch (source) {
    case Source::x:
      return p.wants_dx;
    case Source::x_kv:
      return p.wants_dx_kv;
    case Source::q_latent:
      return needs_any(p, steps, {Slot::q_down});
    case Source::kv_latent:
      return needs_any(p, steps, {Slot::kv_down});
    case Source::attention:
      return needs_any(p, steps, {Slot::qkv, Slot::q, Slot::k, Slot::v});
  }
  return false;
}

AttentionProblem attention_of(const LayerProblem& p) {
  const Steps steps = steps_of(p);
  const bool backward = p.pass == Pass::backward, fused = p.kind == LayerKind::mha_fused;
  const auto wants = [&](Slot slot) { return !backward || fused || needs_any(p, steps, {slot}); };
  return {.pass = p.pass,
          .batch = p.batch,
          .heads_q = p.heads_q,
          .heads_kv = p.heads_kv,
          .len_q = p.len_q,
          .len_k = p.len_k,
          .dim_qk = p.dim_qk,
          .dim_v = p.dim_v,
          .dtype = p.dtype,
          .result_dtype = p.dtype,
          .mask = p.mask,
          .scale = p.scale,
          .device = p.device,
          .reproducible = p.reproducible,
          .wants_dq = wants(Slot::q),
          .wants_dk = wants(Slot::k),
          .wants_dv = wants(Slot::v)};
}

LinearProblem forward_of(const LayerProblem& p, const Step& step) {
  LinearProblem linear{.batch = p.batch,
                       .len = len_of(p, step),
                       .dim_in = step.columns_in,
                       .dim_out = step.columns_out,
                       .dtype = p.dtype,
                       .device = p.device,
                       .bias = at(p.projections, step.slot).bias};
  linear.result_dtype = linear.parameter_dtype = step.slot == Slot::out ? p.result_dtype : p.dtype;
  linear.copies_x = (step.source == Source::x && p.copies_x) || (step.source == Source::x_kv && p.copies_x_kv);
  return linear;
}

LinearProblem backward_of(const LayerProblem& p, const Step& step, bool with_dx) {
  const ProjectionFacts& facts = at(p.projections, step.slot);
  LinearProblem linear{.pass = Pass::backward,
                       .batch = p.batch,
                       .len = len_of(p, step),
                       .dim_in = step.columns_in,
                       .dim_out = step.columns_out,
                       .dtype = p.dtype,
                       .result_dtype = p.dtype,
                       .parameter_dtype = facts.wants_dweight || facts.wants_dbias ? p.parameter_dtype : p.dtype,
                       .device = p.device,
                       .wants_dx = with_dx,
                       .wants_dweight = facts.wants_dweight,
                       .wants_dbias = facts.wants_dbias,
                       .accumulate = p.accumulate && (facts.wants_dweight || facts.wants_dbias)};
  const bool copies = (step.source == Source::x && p.copies_x) || (step.source == Source::x_kv && p.copies_x_kv);
  linear.copies_x = facts.wants_dweight && copies;
  linear.copies_dy = step.slot == Slot::out && p.copies_dy;
  return linear;
}

}  // namespace fovea::layers
