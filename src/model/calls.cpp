// Problems of the calls, whose sizes follow from the model's.
#include "model/calls.h"

#include <algorithm>
#include <cmath>

namespace fovea::model {
namespace {

Rotary rotary_of(const Config& c) { return {.theta = c.theta, .columns = c.head_dim()}; }

LayerProblem attention_problem(const Config& c, const Extent& e, Device device, Pass pass, bool accumulate = false) {
  LayerProblem p{.kind = LayerKind::mha_fused,
                 .pass = pass,
                 .batch = e.batch,
                 .len_q = e.length,
                 .len_k = e.length,
                 .width = c.width,
                 .width_kv = c.width,
                 .heads_q = c.heads,
                 .heads_kv = c.heads,
                 .dim_qk = c.head_dim(),
                 .dim_v = c.head_dim(),
                 .dtype = c.dtype,
                 .result_dtype = c.dtype,
                 .parameter_dtype = pass == Pass::forward ? c.dtype : DType::fp32,
                 .mask = Mask::causal,
                 .scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim())),
                 .device = device,
                 .saves = true,
                 .rotary = rotary_of(c)};
  if (pass == Pass::forward) return p;
  p.wants_dx = true;
  p.accumulate = accumulate;
  p.projections.qkv.wants_dweight = p.projections.out.wants_dweight = true;
  return p;
}

LinearProblem product_problem(std::int64_t rows, std::int64_t columns_in, std::int64_t columns_out, DType dtype,
                              DType result, Device device) {
  return {.len = rows,
          .dim_in = columns_in,
          .dim_out = columns_out,
          .dtype = dtype,
          .result_dtype = result,
          .parameter_dtype = result,
          .device = device};
}

enum class Gradients : std::uint8_t { dx, dweight, both };

LinearProblem backward_of(LinearProblem p, bool accumulate, Gradients wanted = Gradients::both) {
  p.pass = Pass::backward;
  p.result_dtype = p.dtype;
  p.parameter_dtype = DType::fp32;
  p.accumulate = accumulate;
  if (wanted == Gradients::dx) p.parameter_dtype = p.dtype;
  p.wants_dx = wanted != Gradients::dweight;
  p.wants_dweight = wanted != Gradients::dx;
  return p;
}

LinearProblem down_problem(const Config& c, const Extent& e, Device device) {
  return product_problem(e.rows(), c.hidden, c.width, c.dtype, c.dtype, device);
}

}  // namespace

LayerOptions attention_options(const Config& c) {
  return {.kind = LayerKind::mha_fused, .heads_q = c.heads, .mask = Mask::causal, .rotary = rotary_of(c)};
}

LayerExplanation explain_attention(const Config& c, const Extent& e, Device device, Pass pass, bool accumulate) {
  return explain(attention_problem(c, e, device, pass, accumulate));
}

ProductCalls::ProductCalls(const LinearProblem& p)
    : forward(prepare(p)),
      backward{prepare(backward_of(p, false)), prepare(backward_of(p, true))},
      forward_flops(flops(p)),
      backward_flops(flops(backward_of(p, false))),
      forward_bytes(bytes(p)),
      backward_bytes(bytes(backward_of(p, false))) {}

Calls::Calls(const Config& c, const Extent& e, Device on)
    : device(on),
      attention_forward(prepare(attention_problem(c, e, on, Pass::forward))),
      attention_backward{prepare(attention_problem(c, e, on, Pass::backward, false)),
                         prepare(attention_problem(c, e, on, Pass::backward, true))},
      attention_saved_bytes(saved_bytes(attention_problem(c, e, on, Pass::forward))),
      gate_up(product_problem(e.rows(), c.width, 2 * c.hidden, c.dtype, c.dtype, on)),
      down(down_problem(c, e, on)),
      head(product_problem(e.rows(), c.width, c.vocabulary, c.dtype, DType::fp32, on)),
      down_dx(prepare(backward_of(down_problem(c, e, on), false, Gradients::dx))),
      down_dweight{prepare(backward_of(down_problem(c, e, on), false, Gradients::dweight)),
                   prepare(backward_of(down_problem(c, e, on), true, Gradients::dweight))},
      down_dx_bytes(bytes(backward_of(down_problem(c, e, on), false, Gradients::dx))),
      down_dweight_bytes(bytes(backward_of(down_problem(c, e, on), false, Gradients::dweight))),
      qkv(product_problem(e.rows(), c.width, 3 * c.width, c.dtype, c.dtype, on)),
      out(product_problem(e.rows(), c.width, c.width, c.dtype, c.dtype, on)) {
  attention_forward_flops = flops(attention_problem(c, e, on, Pass::forward));
  attention_forward_bytes = bytes(attention_problem(c, e, on, Pass::forward));
  attention_backward_flops = flops(attention_problem(c, e, on, Pass::backward));
  const auto layers = static_cast<double>(c.layers);
  forward_flops = head.forward_flops + layers * (attention_forward_flops + gate_up.forward_flops + down.forward_flops);
  backward_flops =
      head.backward_flops + layers * (attention_backward_flops + gate_up.backward_flops + down.backward_flops);
  if (c.checkpoints_activations) backward_flops += (layers - 1) * recomputed_flops();
}

double Calls::recomputed_flops() const { return attention_forward_flops + gate_up.forward_flops; }
double Calls::recomputed_bytes() const { return attention_forward_bytes + gate_up.forward_bytes; }

std::int64_t Calls::workspace_bytes(Pass pass) const {
  std::int64_t most = 0;
  const auto count = [&most, pass](const Plan& forward, const BackwardPlans& backward) {
    if (pass == Pass::forward) most = std::max(most, forward.workspace_bytes());
    if (pass == Pass::backward)
      most = std::max({most, backward.written.workspace_bytes(), backward.added.workspace_bytes()});
  };
  count(attention_forward, attention_backward);
  count(down.forward, down_dweight);
  if (pass == Pass::backward) most = std::max(most, down_dx.workspace_bytes());
  for (const ProductCalls* product : {&gate_up, &down, &head, &qkv, &out}) count(product->forward, product->backward);
  return most;
}

std::int64_t Calls::workspace_bytes() const {
  return std::max(workspace_bytes(Pass::forward), workspace_bytes(Pass::backward));
}

}  // namespace fovea::model
