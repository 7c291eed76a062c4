// Which gradients flow, and the problems of the parts.
#include "layers/parts.h"

#include <algorithm>
#include <array>

#include "layers/norms.h"

namespace fovea::layers {
namespace {

bool needs_gradient(const LayerProblem& p, const Steps& steps, Source source);

bool needs_result_gradient(const LayerProblem& p, const Steps& steps, const Step& step) {
  const ProjectionFacts& facts = at(p.projections, step.slot);
  return facts.wants_dweight || facts.wants_dbias || needs_gradient(p, steps, step.source);
}

bool needs_any(const LayerProblem& p, const Steps& steps, std::initializer_list<Slot> slots) {
  return std::ranges::any_of(steps, [&](const Step& step) {
    return std::ranges::find(slots, step.slot) != slots.end() && needs_result_gradient(p, steps, step);
  });
}

bool needs_gradient(const LayerProblem& p, const Steps& steps, Source source) {
  switch (source) {
    case Source::x:
      return p.wants_dx;
    case Source::x_kv:
      return p.wants_dx_kv;
    case Source::q_latent:
      return needs_any(p, steps, {Slot::q_down}) || p.norms.q_latent.wants_dweight;
    case Source::kv_latent:
      return needs_any(p, steps, {Slot::kv_down}) || p.norms.kv_latent.wants_dweight;
    case Source::attention:
      return needs_any(p, steps, {Slot::qkv, Slot::q, Slot::k, Slot::v}) || p.norms.q.wants_dweight ||
             p.norms.k.wants_dweight;
  }
  return false;
}

bool copies(const LayerProblem& p, Source source) {
  return (source == Source::x && p.copies_x) || (source == Source::x_kv && p.copies_x_kv);
}

DType gradient_dtype(const LayerProblem& p, Source source) {
  return source == Source::x || source == Source::x_kv ? p.result_dtype : p.dtype;
}

// A linear problem with the sizes of a step.
LinearProblem sized(const LayerProblem& p, const Step& step) {
  return {.pass = p.pass,
          .batch = p.batch,
          .len = len_of(p, step),
          .dim_in = step.columns_in,
          .dim_out = step.columns_out,
          .dtype = p.dtype,
          .result_dtype = p.dtype,
          .parameter_dtype = p.dtype,
          .device = p.device,
          .wants_dx = p.pass == Pass::forward,
          .wants_dweight = p.pass == Pass::forward};
}

LinearProblem backward_of(const LayerProblem& p, const Step& step, bool with_dx, bool accumulate_dx) {
  const ProjectionFacts& facts = at(p.projections, step.slot);
  const bool parameters = facts.wants_dweight || facts.wants_dbias;
  LinearProblem linear = sized(p, step);
  if (with_dx) linear.result_dtype = gradient_dtype(p, step.source);
  if (parameters) linear.parameter_dtype = p.parameter_dtype;
  linear.wants_dx = with_dx;
  linear.wants_dweight = facts.wants_dweight;
  linear.wants_dbias = facts.wants_dbias;
  linear.accumulate = p.accumulate && parameters;
  linear.accumulate_dx = accumulate_dx;
  linear.copies_x = facts.wants_dweight && copies(p, step.source);
  linear.copies_dy = step.slot == Slot::out && p.copies_dy;
  return linear;
}

bool wants_anything(const LinearProblem& linear) {
  return linear.wants_dx || linear.wants_dweight || linear.wants_dbias;
}

// The gradient of attention's result first, gradients of parameters in a product of their own: attention may still
// refuse its saved state, and then nothing of the caller's was written.
void add_out(const LayerProblem& p, const Steps& steps, std::vector<Product>& products) {
  const Step& out = steps.back();
  Product gradient{out.source, out.slot, 0, sized(p, out)};
  gradient.problem.wants_dx = true;
  gradient.problem.copies_dy = p.copies_dy;
  if (needs_gradient(p, steps, out.source)) products.push_back(std::move(gradient));
  Product parameters{out.source, out.slot, 0, backward_of(p, out, false, false)};
  if (wants_anything(parameters.problem)) products.push_back(std::move(parameters));
}

// The products of all projections that read the source.
void add_backward(const LayerProblem& p, const Steps& steps, Source source, std::vector<Product>& products) {
  const bool with_dx = needs_gradient(p, steps, source), packs = with_dx && packs_weights(p, steps, source);
  std::int64_t first = 0;
  for (const Step& step : steps) {
    if (step.source != source) continue;
    Product one{source, step.slot, first, backward_of(p, step, with_dx && !packs, with_dx && !packs && first > 0)};
    if (wants_anything(one.problem)) products.push_back(std::move(one));
    first += step.columns_out;
  }
  if (!packs) return;
  Step all = *std::ranges::find(steps, source, &Step::source);
  all.columns_out = first;
  Product sum{source, std::nullopt, 0, sized(p, all)};
  sum.problem.wants_dx = true;
  products.push_back(std::move(sum));
}

}  // namespace

std::string Product::name() const {
  if (slot) return std::string(name_of(*slot));
  return "d" + std::string(name_of(source));
}

std::int64_t columns_read_from(const Steps& steps, Source source) {
  std::int64_t columns = 0;
  for (const Step& step : steps) columns += step.source == source ? step.columns_out : 0;
  return columns;
}

bool packs_weights(const LayerProblem& p, const Steps& steps, Source source) {
  if (gradient_dtype(p, source) == DType::fp32 || std::ranges::count(steps, source, &Step::source) < 2) return false;
  if (p.device.kind == DeviceKind::cpu || p.dtype != DType::bf16) return true;  // a partial sum may exceed fp16
  double weights = 0, dx = 0, further = -1;                                     // elements; products beyond the first
  for (const Step& step : steps) {
    if (step.source != source) continue;
    const auto columns = static_cast<double>(step.columns_in);
    weights += columns * static_cast<double>(step.columns_out);
    dx = columns * static_cast<double>(p.batch) * static_cast<double>(len_of(p, step));
    ++further;
  }
  const auto size = static_cast<double>(size_of(p.dtype));
  return weights * size <= further * (dx * size + kBytesOfAProduct);
}

bool needs_attention(const LayerProblem& p) {
  return p.pass == Pass::forward || needs_gradient(p, steps_of(p), Source::attention);
}

AttentionProblem attention_of(const LayerProblem& p) {
  const Steps steps = steps_of(p);
  const auto wants = [&](Slot slot, bool norm_wants) {
    return p.pass == Pass::forward || p.kind == LayerKind::mha_fused || norm_wants || needs_any(p, steps, {slot});
  };
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
          .wants_dq = wants(Slot::q, p.norms.q.wants_dweight),
          .wants_dk = wants(Slot::k, p.norms.k.wants_dweight),
          .wants_dv = wants(Slot::v, false),
          .unaligned = p.unaligned_cache};
}

LinearProblem forward_of(const LayerProblem& p, const Step& step) {
  LinearProblem linear = sized(p, step);
  linear.bias = at(p.projections, step.slot).bias;
  if (step.slot == Slot::out) linear.result_dtype = linear.parameter_dtype = p.result_dtype;
  linear.copies_x = copies(p, step.source);
  return linear;
}

std::vector<Product> products_of(const LayerProblem& p) {
  const Steps steps = steps_of(p);
  std::vector<Product> products;
  if (p.pass == Pass::forward) {
    for (const Step& step : steps) products.push_back({step.source, step.slot, 0, forward_of(p, step)});
    return products;
  }
  add_out(p, steps, products);
  for (const Source source : {Source::kv_latent, Source::q_latent, Source::x_kv, Source::x})
    add_backward(p, steps, source, products);
  return products;
}

}  // namespace fovea::layers
