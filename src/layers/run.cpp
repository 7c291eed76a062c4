// Each part reads what an earlier one wrote. On a GPU all of them are enqueued on one stream.
#include "layers/run.h"

#include "layers/row_passes.h"
#include "layers/views.h"

namespace fovea::layers {
namespace {

// The parts run one after another in one workspace. The layer has checked the memory of all of them.
core::RunContext context_of_parts(core::RunContext context, const Views& views) {
  context.workspace = views.parts_workspace();
  context.placement_checked = true;
  return context;
}

void tell(const Product& begins, const core::RunContext& context) {
  if (context.watch != nullptr) (*context.watch)({begins.name(), flops(begins.problem), bytes(begins.problem)});
}
void tell(const AttentionProblem& begins, const core::RunContext& context) {
  if (context.watch != nullptr) (*context.watch)({"attention", flops(begins), bytes(begins)});
}

void attend(const Plan& plan, const Views& views, const core::RunContext& context) {
  if (plan.attention == nullptr) return;
  tell(plan.attention->problem, context);
  const Heads in = views.heads();
  const ForwardTensors tensors{.q = in.q,
                               .k = in.k,
                               .v = in.v,
                               .out = views.attention_heads(),
                               .lse = views.lse(),
                               .saved = views.attention_state()};
  plan.attention->implementation->forward(*plan.attention->plan, tensors, context);
}

void attend_backward(const Plan& plan, const Views& views, const LayerBackwardTensors& t, const RunOfPasses& run) {
  if (plan.attention == nullptr)  // no rows; the gradients of norms are 0
    return differentiate_heads(views, plan.request, attention_of(plan.request), t, run);
  const AttentionProblem& wanted = plan.attention->problem;
  const Heads in = views.heads(), gradients = views.head_gradients();
  BackwardTensors tensors{.q = in.q,
                          .k = in.k,
                          .v = in.v,
                          .out = views.attention_heads(),
                          .lse = views.lse(),
                          .dout = views.attention_head_gradients(),
                          .saved = views.attention_state()};
  if (wanted.wants_dq) tensors.dq = gradients.q;
  if (wanted.wants_dk) tensors.dk = gradients.k;
  if (wanted.wants_dv) tensors.dv = gradients.v;
  tell(wanted, run.context);
  plan.attention->implementation->backward(*plan.attention->plan, tensors, run.context);
  differentiate_heads(views, plan.request, wanted, t, run);
}

TensorView columns_of(TensorView rows, const Product& product) {
  rows.data = static_cast<const char*>(rows.data) + product.first_column * size_of(rows.dtype);
  rows.sizes[3] = product.problem.dim_out;
  return rows;
}

// Copies the weights of all products that sum over projections. They wait for no part.
void pack_weights(const Plan& plan, const Views& views, const LayerParameters& parameters,
                  const core::RunContext& context, const DeviceWork& device) {
  std::vector<WeightCopy> copies;
  for (const auto& [product, choice] : plan.parts) {
    if (product.slot) continue;
    for (const Step& step : views.steps()) {
      if (step.source == product.source)
        copies.push_back({at(parameters, step.slot).weight, views.packed_weight(step)});
    }
  }
  if (!copies.empty()) device.copy_weights(copies, context);
}

}  // namespace

void forward(const Plan& plan, const LayerForwardTensors& t, const core::RunContext& context,
             const DeviceWork& device) {
  const Views views(plan, t.saved, context.workspace, t.cache);
  const core::RunContext inner = context_of_parts(context, views);
  for (std::size_t i = 0; i < views.steps().size(); ++i) {
    const Step& step = views.steps()[i];
    const bool is_out = step.slot == Slot::out;
    if (is_out) attend(plan, views, inner);
    const Projection& projection = at(t.parameters, step.slot);
    const LinearForwardTensors tensors{.x = views.source(step.source, t.x, t.x_kv),
                                       .weight = projection.weight,
                                       .bias = projection.bias,
                                       .y = is_out ? t.y : views.result(step)};
    const auto& choice = *plan.parts[i].choice;
    tell(plan.parts[i].product, inner);
    choice.implementation->forward(*choice.plan, tensors, inner);
    transform_result(views, plan.request, step, t.norms, {device.passes, inner});
  }
}

void backward(const Plan& plan, const LayerBackwardTensors& t, const core::RunContext& context,
              const DeviceWork& device) {
  const Views views(plan, t.saved, context.workspace);
  const core::RunContext inner = context_of_parts(context, views);
  const RunOfPasses run{device.passes, inner};
  pack_weights(plan, views, t.parameters, inner, device);
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    const auto& [product, choice] = plan.parts[i];
    const LinearProblem& wanted = product.problem;
    const bool is_out = product.source == Source::attention;
    LinearBackwardTensors tensors{.x = views.source(product.source, t.x, t.x_kv),
                                  .dy = is_out ? t.dy : columns_of(views.gradients(product.source), product),
                                  .accumulate = wanted.accumulate,
                                  .accumulate_dx = wanted.accumulate_dx};
    if (wanted.wants_dx) tensors.dx = views.source_gradient(product.source, t.dx, t.dx_kv);
    tell(product, inner);
    if (product.slot) {
      tensors.weight = at(t.parameters, *product.slot).weight;
      tensors.dweight = at(t.gradients, *product.slot).weight;
      tensors.dbias = at(t.gradients, *product.slot).bias;
    } else {
      tensors.weight = views.packed_weights(product.source);
    }
    choice->implementation->backward(*choice->plan, tensors, inner);
    if (!wanted.wants_dx) continue;
    if (is_out) attend_backward(plan, views, t, run);
    const bool is_last = i + 1 == plan.parts.size() || plan.parts[i + 1].product.source != product.source;
    if (is_last && (product.source == Source::q_latent || product.source == Source::kv_latent))
      differentiate_latent(views, plan.request, product.source, t, run);
  }
}

}  // namespace fovea::layers
