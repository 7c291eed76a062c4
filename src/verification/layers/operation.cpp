// A layer's members of Operation: tensors, cost, reference, implementations, plan and call.
#include "verification/layers/operation.h"

#include <algorithm>
#include <utility>

#include "attention/implementation.h"
#include "attention/mask.h"
#include "attention/scale.h"
#include "core/names.h"
#include "core/never_destroyed.h"
#include "core/random.h"
#include "layers/problem_line.h"
#include "verification/attention/support_matrix.h"
#include "verification/layers/cases.h"
#include "verification/layers/check.h"
#include "verification/layers/evaluation.h"
#include "verification/layers/families.h"

namespace fovea::verification {
namespace {

std::function<const LayerEvaluator&(DeviceKind)>& evaluator_source() {
  static std::function<const LayerEvaluator&(DeviceKind)> source;
  return source;
}

const LayerEvaluator& evaluator_on(DeviceKind device) {
  return evaluator_source() == nullptr ? layer_evaluator_on_cpu() : evaluator_source()(device);
}

// The problem of one pass of a case, with the case's variation applied.
LayerProblem problem_of(const Case& c, Pass pass) {
  LayerProblem p = layers::problem_of(with_word(c, "pass",
                                                pass == Pass::backward ? "bwd"
                                                : c.backwards()        ? "e2e"
                                                                       : "fwd")
                                          .values);
  const bool dense = c.place() != "strided" && c.place() != "broadcast";
  p.copies_x = !dense;
  p.copies_x_kv = !dense && p.cross;
  const DType result = c.varies("fp32_results") ? DType::fp32 : p.dtype;
  p.result_dtype = result;
  if (pass == Pass::forward) return p;
  p.copies_dy = !dense;
  p.wants_dx = !c.varies("no_dx");
  p.wants_dx_kv = p.cross && !c.varies("no_dx_kv");
  bool wants_parameters = false;
  for (const Step& step : steps_of(p)) {
    ProjectionFacts& facts = at(p.projections, step.part);
    facts.wants_dweight = !c.varies("no_d" + name_of(step.part) + "_weight");
    facts.wants_dbias = c["bias"] == "yes" && !c.varies("no_d" + name_of(step.part) + "_bias");
    wants_parameters = wants_parameters || facts.wants_dweight || facts.wants_dbias;
  }
  for (const NormPart part : kNormParts) {
    NormFacts& facts = at(p.norms, part);
    facts.wants_dweight = facts.given && !c.varies("no_d" + name_of(part));
    wants_parameters = wants_parameters || facts.wants_dweight;
  }
  // Types and accumulation of gradients that are not wanted are the defaults.
  if (!p.wants_dx && !p.wants_dx_kv) p.result_dtype = p.dtype;
  p.accumulate = p.accumulate && wants_parameters;
  p.parameter_dtype = p.accumulate ? DType::fp32 : wants_parameters ? result : p.dtype;
  return p;
}

LayerParameters parameters_of(const TensorSet& set) {
  LayerParameters parameters;
  for (const Part part : kParts)
    at(parameters, part) = {.weight = set[name_of(part) + "_weight"], .bias = set[name_of(part) + "_bias"]};
  return parameters;
}

LayerNorms norms_of(const TensorSet& set) {
  LayerNorms norms;
  for (const NormPart part : kNormParts) at(norms, part) = set[name_of(part)];
  return norms;
}

LayerForwardTensors forward_tensors(const TensorSet& set) {
  return {.x = set["x"], .x_kv = set["x_kv"], .parameters = parameters_of(set), .y = set["y"], .norms = norms_of(set)};
}

LayerBackwardTensors backward_tensors(const Case& c, const TensorSet& set) {
  LayerBackwardTensors t{.x = set["x"], .x_kv = set["x_kv"], .parameters = parameters_of(set), .dy = set["dy"]};
  t.dx = set["dx"], t.dx_kv = set["dx_kv"];
  for (const Part part : kParts)
    at(t.gradients, part) = {.weight = set["d" + name_of(part) + "_weight"],
                             .bias = set["d" + name_of(part) + "_bias"]};
  t.accumulate = c.operation->accumulates(c);
  t.norms = norms_of(set);
  for (const NormPart part : kNormParts) at(t.norm_gradients, part) = set["d" + name_of(part)];
  return t;
}

// A bare library call of Linear's list names the products, and leaves attention to be chosen. Every other name is of
// attention.
struct Names {
  std::string attention, product;
};

bool is_bare_call(std::string_view name) { return name.starts_with("cpu.bare_"); }

Names names_of(std::string_view implementation) {
  const std::string name(implementation);
  return is_bare_call(name) ? Names{.product = name} : Names{.attention = name};
}

const attention::Implementation& attention_of(const ImplementationFacts& facts) {
  const auto& all = attention::implementations();
  return *std::find_if(all.begin(), all.end(), [&facts](const attention::Implementation& one) {
    return one.name == facts.name && one.device == facts.device;
  });
}

// "attention cpu.avx512: 96 x 64 tiles; products cpu.own".
std::string tiles_of(const LayerExplanation& told) {
  std::string text = told.attention.empty() ? "no attention" : "attention " + told.attention;
  for (const auto& part : told.parts) {
    if (part.name == "attention" && !part.explanation.tiles.empty()) text += ": " + part.explanation.tiles;
  }
  if (!told.product.empty()) text += "; products " + told.product;
  for (const std::string& pass : told.row_passes) text += "; " + pass;
  return text;
}

// The verdicts on attention; if the layer cannot run, those on the parts that nothing takes.
std::vector<CasePlan::Step> walk_of(const LayerExplanation& told) {
  const auto is_chosen = [](const auto& part) { return !part.explanation.chosen.empty(); };
  const bool runs = std::all_of(told.parts.begin(), told.parts.end(), is_chosen);
  std::vector<CasePlan::Step> walk;
  for (const auto& part : told.parts) {
    const Explanation& one = part.explanation;
    const bool is_attention = part.name == "attention";
    if (is_chosen(part) && !(runs && is_attention)) continue;
    for (const auto& step : one.walk)
      walk.push_back({is_attention ? step.name : part.name + " by " + step.name, step.accepted, step.reason,
                      step.predicted_seconds});
  }
  return walk;
}

class Layer final : public Operation {
 public:
  explicit Layer(LayerKind kind) : Operation(layers::layer_keys(kind), layer_families()) {}

  std::vector<TensorSpec> tensors(const Case& c) const override;
  Cost cost(const Case& c) const override;
  void run_reference(const Case&, const TensorSet&) const override {}  // backward reads no output of forward
  Expectation expect(const Case& c, Pass pass, const TensorSet& given) const override;
  std::vector<ImplementationFacts> implementations() const override;
  CasePlan plan(const Case& c, std::string_view implementation) const override;
  Call prepare(const Case& c, const TensorSet& tensors, const CallSettings& settings) const override;
  Case random_case(std::uint64_t seed, std::uint64_t n, const CaseLimits& limits) const override {
    return random_layer_case(*this, seed, n, limits);
  }
  std::vector<std::string> variation_of(const Case& c) const override;
  bool accumulates(const Case& c) const override { return c["accumulate"] == "yes"; }
  std::vector<Axis> axes() const override;
  AxisCell cell_of(const Case& c, Pass pass) const override;
  CellSupport support_of(const ImplementationFacts& implementation, const AxisCell& at) const override;
  bool is_beyond_cells(const Case& c) const override {
    return !attention::scale_refusal(layers::problem_of(c.values).scale).empty();
  }
  std::string support_page() const override;
};

std::vector<TensorSpec> Layer::tensors(const Case& c) const {
  const LayerProblem p = problem_of(c, Pass::forward);
  const LayerProblem backward = c.backwards() ? problem_of(c, Pass::backward) : p;
  const Sizes x{p.batch, 1, p.len_q, p.width}, x_kv{p.batch, 1, p.len_k, p.width_kv};
  const PerProjection<Sizes> weights = weight_sizes(p);
  std::vector<TensorSpec> tensors;
  const auto add = [&](const std::string& name, Role role, DType dtype, const Sizes& sizes) {
    if (!c.varies("no_" + name)) tensors.push_back({name, role, dtype, sizes, dense_strides(sizes)});
  };
  const auto add_parameters = [&](const std::string& prefix, Role role, DType dtype) {
    for (const Step& step : steps_of(p)) {
      const Sizes& sizes = at(weights, step.part);
      add(prefix + name_of(step.part) + "_weight", role, dtype, sizes);
      if (c["bias"] == "yes") add(prefix + name_of(step.part) + "_bias", role, dtype, {1, 1, 1, sizes[2]});
    }
    const PerNorm<Sizes> norms = norm_sizes(p);
    for (const NormPart part : kNormParts) {
      if (at(p.norms, part).given) add(prefix + name_of(part), role, dtype, at(norms, part));
    }
  };
  add("x", Role::input, p.dtype, x);
  if (p.cross) add("x_kv", Role::input, p.dtype, x_kv);
  add_parameters("", Role::parameter, p.dtype);
  add("y", Role::output, p.result_dtype, x);
  if (!c.backwards()) return tensors;
  add("dy", Role::input, p.dtype, x);
  add("dx", Role::gradient, backward.result_dtype, x);
  if (p.cross) add("dx_kv", Role::gradient, backward.result_dtype, x_kv);
  add_parameters("d", Role::gradient, backward.parameter_dtype);
  return tensors;
}

Cost Layer::cost(const Case& c) const {
  Cost cost;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::forward ? !c.forwards() : !c.backwards()) continue;
    const LayerProblem p = problem_of(c, pass);
    cost.flops += flops(p);
    cost.bytes += bytes(p);
  }
  const LayerProblem p = problem_of(c, Pass::forward);
  const double rows = static_cast<double>(p.batch) * static_cast<double>(p.len_q + p.len_k);
  cost.scratch_bytes = 3.0 * 4.0 * static_cast<double>(p.batch * p.heads_q) * static_cast<double>(p.len_q * p.len_k) +
                       6.0 * 4.0 * rows * static_cast<double>(p.heads_q * std::max(p.dim_qk, p.dim_v));
  return cost;
}

Expectation Layer::expect(const Case& c, Pass pass, const TensorSet& given) const {
  std::vector<TensorSpec> results;
  for (TensorSpec& one : tensors(c)) {
    if (one.role == (pass == Pass::forward ? Role::output : Role::gradient)) results.push_back(std::move(one));
  }
  return expect_layer(problem_of(c, pass), results, given, c.seed(), c.data() == "nonfinite", evaluator_on(c.device()));
}

std::vector<ImplementationFacts> Layer::implementations() const {
  std::vector<ImplementationFacts> facts;
  for (const attention::Implementation& one : attention::implementations())
    facts.push_back({std::string(one.name), one.device, one.automatic, one.reproducible, one.obstacle()});
  for (const ImplementationInfo& one : linear_implementations()) {
    if (is_bare_call(one.name))
      facts.push_back({one.name, one.device, one.automatic, false, one.unavailable});  // its library promises no bits
  }
  return facts;
}

// Backward always runs after a forward that saves, so a backward case has the needs of both.
CasePlan Layer::plan(const Case& c, std::string_view implementation) const {
  auto [attention, product] = names_of(implementation);
  const bool reproducible = product.empty() && attention::promises_reproducibility(attention);
  CasePlan plan;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::backward && !c.backwards()) continue;
    LayerProblem p = problem_of(c, pass);
    p.reproducible = reproducible;
    const LayerExplanation told = explain(p, attention, product);
    if (pass == Pass::forward) attention = told.attention;  // backward may have none, if no gradient needs it
    const bool runs = std::all_of(told.parts.begin(), told.parts.end(),
                                  [](const auto& part) { return !part.explanation.chosen.empty(); });
    if (plan.walk.empty() || !runs) plan.walk = walk_of(told);
    plan.implementation = !runs ? "" : product.empty() ? attention : product;
    if (!runs) return plan;
    if (pass == Pass::backward || c.forwards())
      (pass == Pass::forward ? plan.forward_tiles : plan.backward_tiles) = tiles_of(told);
    plan.workspace_bytes = std::max(plan.workspace_bytes, told.workspace_bytes);
    if (pass == Pass::forward && p.saves) {
      plan.saved_bytes = told.saved_bytes;
      for (const auto& one : told.saved) plan.saved.push_back({one.name, one.bytes});
    }
  }
  return plan;
}

Call Layer::prepare(const Case& c, const TensorSet& tensors, const CallSettings& settings) const {
  struct Prepared {
    Names names;
    LayerForwardTensors forward;
    LayerBackwardTensors backward;
    LayerOptions options;
  };
  const auto call = std::make_shared<Prepared>();
  const LayerProblem p = problem_of(c, Pass::forward);
  call->names = names_of(settings.implementation);
  call->forward = forward_tensors(tensors);
  call->backward = backward_tensors(c, tensors);
  call->forward.saved = call->backward.saved = settings.saved;
  call->options = {
      .kind = p.kind,
      .heads_q = p.heads_q,
      .heads_kv = p.heads_kv,
      .mask = p.mask,
      .scale = p.scale,
      .attention = call->names.attention,
      .product = call->names.product,
      .threads = settings.threads,
      .stream = settings.stream,
      .workspace = settings.workspace,
      .reproducible = call->names.product.empty() && attention::promises_reproducibility(call->names.attention),
      .rotary = p.rotary,
      .epsilon = p.epsilon > 0 ? p.epsilon : LayerOptions{}.epsilon};
  return {.forward = [call] { layer_forward(call->forward, call->options); },
          .backward = [call] { layer_backward(call->backward, call->options); }};
}

// Besides gradients that are left out: fp32 results.
std::vector<std::string> Layer::variation_of(const Case& c) const {
  std::vector<std::string> words = Operation::variation_of(c);
  if (c.dtype() != DType::fp32 && core::philox(c.seed(), 0xADD, 0)[0] % 3 == 0) words.emplace_back("fp32_results");
  return words;
}

std::vector<Axis> Layer::axes() const {
  std::vector<Axis> axes = Operation::axes();
  axes.push_back({"mask", {}});
  for (const core::MaskWord& one : core::mask_words()) axes.back().classes.emplace_back(one.word);
  return axes;
}

AxisCell Layer::cell_of(const Case& c, Pass pass) const {
  AxisCell cell = Operation::cell_of(c, pass);
  cell.push_back(core::index_of(layers::problem_of(c.values).mask));
  return cell;
}

// What attention takes at every class of head dimensions. Linear takes every type on its device.
CellSupport Layer::support_of(const ImplementationFacts& implementation, const AxisCell& cell) const {
  if (is_bare_call(implementation.name)) return {Support::partly, ""};  // it takes only some products
  CellSupport total;
  for (std::size_t dims = 0; dims < dim_classes().size(); ++dims) {
    const CellSupport one =
        verification::support_of(attention_of(implementation), {cell[1], cell[0], cell[2], 1, dims});
    if (dims == 0) {
      total = one;
    } else if (one.support != total.support) {
      total = {Support::partly, total.reason.empty() ? one.reason : total.reason};
    }
  }
  return total;
}

// All kinds take the same, so one page is enough.
std::string Layer::support_page() const {
  if (name() != to_string(kLayerKinds[0])) return "";
  return "\n# What each implementation of the layers takes\n\n"
         "`mha_fused`, `mha`, `gqa`, `mqa` and `mla` run with any implementation of attention in the table above, and\n"
         "take the masks and types that it takes. The name of an implementation names the attention; only those that\n"
         "begin with `cpu.bare_` name the products. Projections and their gradients run as `linear` does.\n"
         "Included are both passes, biases, another sequence for keys and values, gradients that are left out or\n"
         "added to, rotary embedding, norms and fp32 results.\n";
}

}  // namespace

const Operation& layer_operation(LayerKind kind) {
  struct All {
    Layer layers[5] = {Layer(LayerKind::mha_fused), Layer(LayerKind::mha), Layer(LayerKind::gqa), Layer(LayerKind::mqa),
                       Layer(LayerKind::mla)};
  };
  static const auto& all = core::never_destroyed<All>();
  return all.layers[static_cast<std::size_t>(kind)];
}

void evaluate_layers_by(std::function<const LayerEvaluator&(DeviceKind)> evaluator_on) {
  evaluator_source() = std::move(evaluator_on);
}

void register_layers() {
  for (const LayerKind kind : kLayerKinds) register_operation(layer_operation(kind));
}

}  // namespace fovea::verification
