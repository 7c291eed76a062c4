// Problems of the calls, whose sizes follow from the model's.
#include "model/calls.h"

#include <algorithm>
#include <cmath>

namespace fovea::model {
namespace {

Rotary rotary_of(const Config& c) { return {.theta = c.theta, .columns = c.head_dim()}; }

LayerProblem attention_problem(const Config& c, const Extent& e, Device device, Pass pass) {
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
                 .mask = Mask::causal,
                 .scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim())),
                 .device = device,
                 .saves = true,
                 .rotary = rotary_of(c)};
  if (pass == Pass::forward) return p;
  p.wants_dx = true;
  p.accumulate = true;
  p.projections.qkv.wants_dweight = p.projections.out.wants_dweight = true;
  return p;
}

LinearProblem product_problem(std::int64_t rows, std::int64_t columns_in, std::int64_t columns_out, Device device,
                              Pass pass) {
  LinearProblem p{.pass = pass, .len = rows, .dim_in = columns_in, .dim_out = columns_out, .device = device};
  p.accumulate = pass == Pass::backward;
  return p;
}

}  // namespace

LayerOptions attention_options(const Config& c) {
  return {.kind = LayerKind::mha_fused, .heads_q = c.heads, .mask = Mask::causal, .rotary = rotary_of(c)};
}

ProductCalls::ProductCalls(std::int64_t rows, std::int64_t columns_in, std::int64_t columns_out, Device device)
    : forward(prepare(product_problem(rows, columns_in, columns_out, device, Pass::forward))),
      backward(prepare(product_problem(rows, columns_in, columns_out, device, Pass::backward))),
      forward_flops(flops(product_problem(rows, columns_in, columns_out, device, Pass::forward))),
      backward_flops(flops(product_problem(rows, columns_in, columns_out, device, Pass::backward))) {}

Calls::Calls(const Config& c, const Extent& e, Device on)
    : device(on),
      attention_forward(prepare(attention_problem(c, e, on, Pass::forward))),
      attention_backward(prepare(attention_problem(c, e, on, Pass::backward))),
      attention_saved_bytes(saved_bytes(attention_problem(c, e, on, Pass::forward))),
      gate_up(e.rows(), c.width, 2 * c.hidden, on),
      down(e.rows(), c.hidden, c.width, on),
      head(e.rows(), c.width, c.vocabulary, on) {
  attention_forward_flops = flops(attention_problem(c, e, on, Pass::forward));
  attention_backward_flops = flops(attention_problem(c, e, on, Pass::backward));
  const auto layers = static_cast<double>(c.layers);
  forward_flops = head.forward_flops + layers * (attention_forward_flops + gate_up.forward_flops + down.forward_flops);
  backward_flops =
      head.backward_flops + layers * (attention_backward_flops + gate_up.backward_flops + down.backward_flops);
}

std::int64_t Calls::workspace_bytes() const {
  std::int64_t most = 0;
  for (const Plan* plan : {&attention_forward, &attention_backward, &gate_up.forward, &gate_up.backward, &down.forward,
                           &down.backward, &head.forward, &head.backward})
    most = std::max(most, plan->workspace_bytes());
  return most;
}

}  // namespace fovea::model
