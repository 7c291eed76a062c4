// A model's members of Operation: tensors, cost, reference, implementation, plan and call.
#include "verification/model/operation.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/float16.h"
#include "core/never_destroyed.h"
#include "model/model.h"
#include "model/problem_line.h"
#include "verification/model/cases.h"
#include "verification/model/check.h"

namespace fovea::verification {
namespace {

// Of a step: late enough that both moments matter.
constexpr double kLearningRate = 1e-2;
constexpr std::int64_t kStep = 4;

// Calls visit(index of the element in the tensor, its place in memory) for each element of a matrix.
template <class Visit>
void for_each_element(const TensorView& view, const Visit& visit) {
  for (std::int64_t row = 0; row < view.sizes[2]; ++row) {
    for (std::int64_t c = 0; c < view.sizes[3]; ++c) visit(row * view.sizes[3] + c, row * view.strides[2] + c);
  }
}

std::vector<std::int32_t> read_tokens(const TensorView& view) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(view.sizes[2] * view.sizes[3]));
  for_each_element(view, [&](std::int64_t n, std::int64_t at) {
    tokens[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(core::load_as_float(view.data, view.dtype, at));
  });
  return tokens;
}

// All parameters' tensors of a kind, in the map's layout; empty if there are none.
std::vector<float> read_all(const model::ParameterMap& map, std::string_view kind, const TensorSet& tensors) {
  std::vector<float> values;
  for (const model::Parameter& one : map.all()) {
    const TensorView view = tensors[std::string(kind) + one.name];
    if (!view) return {};
    values.resize(static_cast<std::size_t>(map.floats()));
    for_each_element(view, [&](std::int64_t n, std::int64_t at) {
      values[static_cast<std::size_t>(one.offset + n)] = core::load_as_float(view.data, view.dtype, at);
    });
  }
  return values;
}

void write_all(const model::ParameterMap& map, std::string_view kind, const TensorSet& tensors,
               const std::vector<float>& values) {
  for (const model::Parameter& one : map.all()) {
    const MutableTensorView view = tensors[std::string(kind) + one.name];
    if (!view) continue;
    for_each_element(view, [&](std::int64_t n, std::int64_t at) {
      core::store_from_float(view.data, view.dtype, at, values[static_cast<std::size_t>(one.offset + n)]);
    });
  }
}

std::shared_ptr<const ModelInputs> inputs_of(const Case& c, const TensorSet& tensors) {
  const auto inputs = std::make_shared<ModelInputs>(model::config_of(c.values));
  inputs->extent = model::extent_of(c.values);
  inputs->tokens = read_tokens(tensors["tokens"]);
  inputs->targets = read_tokens(tensors["targets"]);
  inputs->weights = read_all(inputs->map, "", tensors);
  if (c.operation->accumulates(c)) inputs->gradients = read_all(inputs->map, kGradientOf, tensors);
  return inputs;
}

std::optional<ModelUpdate> update_of(const Case& c, const model::ParameterMap& map, const TensorSet& tensors) {
  if (!c.updates()) return std::nullopt;
  return ModelUpdate{.settings = {},
                     .learning_rate = kLearningRate,
                     .step = kStep,
                     .first_moment = read_all(map, kFirstMoment, tensors),
                     .second_moment = read_all(map, kSecondMoment, tensors)};
}

// A model that takes its weights from tensors, and writes its results to them.
class ModelCall {
 public:
  ModelCall(const Case& c, const TensorSet& tensors, const CallSettings& settings)
      : case_(c),
        tensors_(tensors),
        inputs_(inputs_of(c, tensors)),
        update_(update_of(c, inputs_->map, tensors)),
        context_{.threads = settings.threads},
        model_(inputs_->config, inputs_->extent, 0) {
    model_.write(model::State::weights, inputs_->weights, context_);
  }

  void begin() {
    if (update_ && has_changed_) model_.write(model::State::weights, inputs_->weights, context_);
    if (update_) {
      model_.write(model::State::first_moment, update_->first_moment, context_);
      model_.write(model::State::second_moment, update_->second_moment, context_);
    }
    if (accumulates()) model_.write(model::State::gradients, read_all(model_.map(), kGradientOf, tensors_), context_);
    if (!case_.forwards()) forward();
  }

  void forward() {
    model_.forward({inputs_->tokens, inputs_->targets}, case_["pass"] == "fwd" ? 0.0 : 1.0, context_);
    has_run_forward_ = true;
  }

  void backward() {
    if (!has_run_forward_) forward();
    model_.backward({inputs_->tokens, inputs_->targets}, context_, accumulates());
    if (update_) model::update(model_, update_->settings, kLearningRate, kStep, context_), has_changed_ = true;
  }

  void end() {
    if (const MutableTensorView view = tensors_[kLosses]; view && has_run_forward_) {
      const std::vector<double> losses = model_.token_losses(context_);
      for_each_element(view, [&](std::int64_t n, std::int64_t at) {
        core::store_from_float(view.data, view.dtype, at, static_cast<float>(losses[static_cast<std::size_t>(n)]));
      });
    }
    write_all(model_.map(), kGradientOf, tensors_, model_.read(model::State::gradients, context_));
    if (update_) write_all(model_.map(), kUpdated, tensors_, model_.read(model::State::weights, context_));
    has_run_forward_ = false;
  }

 private:
  bool accumulates() const { return case_.operation->accumulates(case_); }

  Case case_;
  TensorSet tensors_;
  std::shared_ptr<const ModelInputs> inputs_;
  std::optional<ModelUpdate> update_;
  core::RunContext context_;
  model::Model model_;
  bool has_run_forward_ = false, has_changed_ = false;
};

// "attention cpu.avx512; products cpu.own, cpu.onednn", of one pass of a case on the CPU.
std::string chosen_of(const Case& c, const model::Calls& calls, Pass pass) {
  const bool accumulates = pass == Pass::backward && c.operation->accumulates(c);
  const LayerExplanation layer =
      model::explain_attention(model::config_of(c.values), model::extent_of(c.values), {}, pass, accumulates);
  std::string products = layer.product;
  for (const model::ProductCalls* one : {&calls.gate_up, &calls.down, &calls.head}) {
    const Plan& plan = pass == Pass::forward ? one->forward : one->backward.plan(accumulates);
    const std::string product(plan.implementation());
    if (products.find(product) == std::string::npos) products += ", " + product;
  }
  return "attention " + layer.attention + "; products " + products;
}

// Of the plan's one block: each begins where the one before ends.
std::vector<CasePlan::Array> arrays_of(const model::MemoryPlan& memory) {
  std::vector<CasePlan::Array> arrays{{"weights", memory.gradients - memory.weights},
                                      {"gradients", memory.first_moment - memory.gradients},
                                      {"optimizer state", memory.rounded - memory.first_moment},
                                      {"weights in bf16", memory.state_bytes - memory.rounded},
                                      {"kept for backward", memory.activation_bytes},
                                      {"scratch", memory.total_bytes - memory.state_bytes - memory.activation_bytes}};
  std::erase_if(arrays, [](const auto& one) { return one.bytes == 0; });
  return arrays;
}

class ModelOperation final : public Operation {
 public:
  ModelOperation() : Operation(model::model_keys(), model_families()) {}

  std::vector<TensorSpec> tensors(const Case& c) const override;
  Cost cost(const Case& c) const override;
  void run_reference(const Case&, const TensorSet&) const override {}  // backward reads no output of forward
  Expectation expect(const Case& c, Pass pass, const TensorSet& given) const override;
  std::vector<ImplementationFacts> implementations() const override {
    return {{.name = std::string(kModelImplementation), .unavailable = ""}};
  }
  CasePlan plan(const Case& c, std::string_view implementation) const override;
  Call prepare(const Case& c, const TensorSet& tensors, const CallSettings& settings) const override;
  Case random_case(std::uint64_t seed, std::uint64_t n, const CaseLimits& limits) const override {
    return random_model_case(*this, seed, n, limits);
  }
  std::vector<std::string> variation_of(const Case&) const override { return {}; }  // a model has all its gradients
  bool accumulates(const Case& c) const override { return c["accumulate"] == "yes"; }
  std::vector<Axis> axes() const override;
  AxisCell cell_of(const Case& c, Pass pass) const override;
  CellSupport support_of(const ImplementationFacts&, const AxisCell&) const override { return {Support::yes, ""}; }
  std::string support_page() const override;
};

std::vector<TensorSpec> ModelOperation::tensors(const Case& c) const {
  const model::Extent extent = model::extent_of(c.values);
  const model::ParameterMap map(model::config_of(c.values));
  std::vector<TensorSpec> tensors;
  const auto add = [&tensors](std::string name, Role role, const Sizes& sizes) {
    tensors.push_back({std::move(name), role, DType::fp32, sizes, dense_strides(sizes)});
  };
  const auto add_parameters = [&](std::string_view kind, Role role) {
    for (const model::Parameter& one : map.all())
      add(std::string(kind) + one.name, role, {1, 1, one.rows, one.columns});
  };
  const Sizes rows{1, 1, extent.batch, extent.length};
  add("tokens", Role::input, rows);
  add("targets", Role::input, rows);
  add_parameters("", Role::parameter);
  if (c.updates()) add_parameters(kFirstMoment, Role::parameter), add_parameters(kSecondMoment, Role::parameter);
  add(std::string(kLosses), Role::output, rows);
  if (c.backwards()) add_parameters(kGradientOf, Role::gradient);
  if (c.updates()) add_parameters(kUpdated, Role::gradient);
  return tensors;
}

Cost ModelOperation::cost(const Case& c) const {
  const model::Config config = model::config_of(c.values);
  const model::Extent extent = model::extent_of(c.values);
  const model::Calls calls(config, extent);
  Cost cost;
  if (c.forwards()) cost.flops += calls.forward_flops;
  if (c.backwards()) cost.flops += calls.backward_flops;
  for (const TensorSpec& one : tensors(c))
    cost.bytes += static_cast<double>(size_of(one.dtype)) * static_cast<double>(one.sizes[2] * one.sizes[3]);
  cost.scratch_bytes =
      static_cast<double>(model::MemoryPlan(config, extent, model::ParameterMap(config), calls).total_bytes);
  return cost;
}

Expectation ModelOperation::expect(const Case& c, Pass pass, const TensorSet& given) const {
  std::vector<TensorSpec> results;
  for (TensorSpec& one : tensors(c)) {
    if (one.role == (pass == Pass::forward ? Role::output : Role::gradient)) results.push_back(std::move(one));
  }
  const auto inputs = inputs_of(c, given);
  return expect_model(inputs, update_of(c, inputs->map, given), pass, results);
}

CasePlan ModelOperation::plan(const Case& c, std::string_view implementation) const {
  CasePlan plan;
  CasePlan::Step& step = plan.walk.emplace_back();
  step.name = kModelImplementation;
  if (!implementation.empty() && implementation != kModelImplementation) {
    step.reason = "not asked for";
  } else if (c.device() != DeviceKind::cpu) {
    step.reason = "problem lines of models run on the CPU; fovea profile --device cuda runs them on a GPU";
  } else {
    const model::Config config = model::config_of(c.values);
    const model::Extent extent = model::extent_of(c.values);
    const model::Calls calls(config, extent);
    step.accepts = true;
    plan.implementation = kModelImplementation;
    if (c.forwards()) plan.forward_tiles = chosen_of(c, calls, Pass::forward);
    if (c.backwards()) plan.backward_tiles = chosen_of(c, calls, Pass::backward);
    plan.own_memory = arrays_of(model::MemoryPlan(config, extent, model::ParameterMap(config), calls));
  }
  return plan;
}

Call ModelOperation::prepare(const Case& c, const TensorSet& tensors, const CallSettings& settings) const {
  const auto call = std::make_shared<ModelCall>(c, tensors, settings);
  return {.forward = [call] { call->forward(); },
          .backward = [call] { call->backward(); },
          .begin = [call] { call->begin(); },
          .end = [call] { call->end(); }};
}

std::vector<Axis> ModelOperation::axes() const {
  std::vector<Axis> axes = Operation::axes();
  axes.push_back({"activations", {"kept", "checkpointed"}});
  return axes;
}

AxisCell ModelOperation::cell_of(const Case& c, Pass pass) const {
  AxisCell cell = Operation::cell_of(c, pass);
  cell.push_back(c["activations"] == "checkpointed" ? 1 : 0);
  return cell;
}

std::string ModelOperation::support_page() const {
  return "\n# What models take\n\n"
         "`op=model` has one implementation, `fovea`: the code of `fovea train` and `fovea profile`. It takes fp32 and "
         "bf16,\n"
         "both passes, steps with the optimizer, kept and checkpointed activations, and gradients that are added to.\n"
         "Its problem lines run on the CPU only; `fovea profile --device cuda` runs models on a GPU. The bits are "
         "equal\n"
         "for any number of threads.\n";
}

}  // namespace

const Operation& model_operation() {
  static const auto& operation = core::never_destroyed<ModelOperation>();
  return operation;
}

}  // namespace fovea::verification
