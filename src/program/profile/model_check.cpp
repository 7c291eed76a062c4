// The step is one of op=model, made on the profiled device. Its reference is evaluated on the CPU.
#include "program/profile/model_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/binary_size.h"
#include "core/random.h"
#include "fovea/error.h"
#include "program/interrupt.h"
#include "program/machine/device.h"
#include "program/profile/model_memory.h"
#include "verification/model/check.h"

namespace fovea::program {
namespace {

using verification::kGradientOf;
using verification::kLosses;
using verification::kUpdated;
using verification::ModelInputs;

constexpr std::int64_t kSequences = 2, kLeastLength = 8, kMostLength = 64;
constexpr double kReferenceFlops = 4e9;
// Of a step that is late enough for both moments to matter, and so large that its new weights tell of its gradients.
constexpr double kCheckedRate = 1e-2;
constexpr std::int64_t kStepsBefore = 4;
constexpr float kMoment = 0.01f;  // times a weight: about the size of a clipped gradient
// Of this process for each parameter, at the most: inputs, answers, and both evaluations with their results as doubles.
constexpr std::int64_t kBytesOfParameter = 100;

// Ones would hide a norm whose weight is not read.
void move_norms(const model::ParameterMap& map, std::uint64_t seed, std::vector<float>& weights) {
  for (const model::Parameter& one : map.all()) {
    for (std::int64_t i = one.offset; one.is_vector && i < one.offset + one.count(); ++i)
      weights[static_cast<std::size_t>(i)] +=
          0.125f * core::approximate_normal(core::philox(seed, map.all().size(), static_cast<std::uint64_t>(i)));
  }
}

// Weights of other places are random numbers too.
void draw_moments(const std::vector<float>& weights, verification::ModelUpdate& update) {
  const std::size_t count = weights.size();
  update.first_moment.resize(count), update.second_moment.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float root = kMoment * weights[(i + count / 2) % count], least = kMoment * 0.01f;
    update.first_moment[i] = kMoment * weights[count - 1 - i];
    update.second_moment[i] = root * root + least * least;
  }
}

// What a step must have written, and what it wrote.
struct Compared {
  std::vector<verification::TensorSpec> wanted;
  verification::TensorSet written;

  void add(const std::string& name, const std::vector<float>& values, std::int64_t offset, std::int64_t rows,
           std::int64_t columns) {
    float* const first = const_cast<float*>(values.data()) + offset;  // a comparison writes nothing
    const MutableTensorView view = contiguous(first, {1, 1, rows, columns});
    wanted.push_back({name, verification::Role::gradient, view.dtype, view.sizes, view.strides});
    written.add(name, view);
  }
};

std::string kind_of(const std::string& tensor) {
  return tensor.starts_with(kGradientOf) ? "gradients" : tensor.starts_with(kUpdated) ? "new weights" : tensor;
}

// A checkpointed block runs again only if another follows it.
model::Config checked_config(model::Config config) {
  config.layers = std::min<std::int64_t>(config.layers, config.checkpoints_activations ? 2 : 1);
  return config;
}

std::string layers_of(const model::Config& checked) { return checked.layers == 1 ? "one layer" : "two layers"; }

void go_on(const ProfileSettings& settings) {
  if (settings.stops && settings.stops()) throw Interrupted();
}

}  // namespace

model::Extent checked_extent(const model::Config& profiled, std::int64_t context) {
  const auto parameters = static_cast<double>(model::parameter_count(checked_config(profiled)));
  const double of_a_token = 6 * kSequences * parameters;
  const auto length = static_cast<std::int64_t>(kReferenceFlops / of_a_token);
  return {kSequences, std::min(std::clamp(length, kLeastLength, kMostLength), context)};
}

CheckedStep checked_step(const model::Config& profiled, const ProfileSettings& settings, std::uint64_t seed) {
  const model::Config config = checked_config(profiled);
  const model::Extent extent = checked_extent(profiled, settings.context);
  const core::RunContext context{.threads = settings.threads};
  model::Model model(config, extent, seed, settings.device);
  const auto inputs = std::make_shared<ModelInputs>(config);
  inputs->extent = extent;
  inputs->device = settings.device.kind;
  inputs->tokens = random_tokens(config, extent.rows(), seed);
  inputs->targets.assign(inputs->tokens.begin() + extent.rows(), inputs->tokens.end());
  inputs->tokens.resize(static_cast<std::size_t>(extent.rows()));
  inputs->weights = model.read(model::State::weights, context);
  move_norms(inputs->map, seed, inputs->weights);
  CheckedStep step{inputs, {.learning_rate = kCheckedRate, .step = kStepsBefore}, {}};
  draw_moments(inputs->weights, step.update);
  model.write(model::State::weights, inputs->weights, context);
  model.write(model::State::first_moment, step.update.first_moment, context);
  model.write(model::State::second_moment, step.update.second_moment, context);
  const model::Batch batch{inputs->tokens, inputs->targets};
  model.forward_backward(batch, 1, context);
  const std::vector<double> losses = model.token_losses(context);
  step.answers.losses.assign(losses.begin(), losses.end());
  step.answers.gradients = model.read(model::State::gradients, context);
  model::update(model, step.update.settings, kCheckedRate, kStepsBefore, context);
  step.answers.weights = model.read(model::State::weights, context);
  return step;
}

// Each tensor is judged by itself. The record keeps the worst of each kind.
ModelVerdict verdict_on(const CheckedStep& step) {
  const model::Extent& extent = step.inputs->extent;
  Compared compared;
  compared.add(std::string(kLosses), step.answers.losses, 0, extent.batch, extent.length);
  for (const model::Parameter& one : step.inputs->map.all()) {
    compared.add(std::string(kGradientOf) + one.name, step.answers.gradients, one.offset, one.rows, one.columns);
    compared.add(std::string(kUpdated) + one.name, step.answers.weights, one.offset, one.rows, one.columns);
  }
  const verification::Verdict judged = verification::compare(
      verification::expect_model(step.inputs, step.update, Pass::backward, compared.wanted), compared.written);
  const std::string layers = layers_of(step.inputs->config);
  ModelVerdict verdict;
  verdict.compared = fmt::format("{} of these sizes, {} x {} tokens", layers, extent.batch, extent.length);
  for (const verification::TensorError& one : judged.tensors) {
    ErrorFigures& worst = verdict.error[layers + ": " + kind_of(one.tensor)];
    worst = {std::fmax(worst.rel_l2, one.rel_l2), std::fmax(worst.max_abs, one.max_abs),
             std::fmax(worst.ratio_to_plain, one.ratio_to_plain)};
  }
  if (!judged.ok) verdict.status = "mismatch", verdict.reason = layers + ": " + judged.reason();
  return verdict;
}

ModelVerdict check_model(const model::Config& profiled, const ProfileSettings& settings) try {
  const std::int64_t wanted = kBytesOfParameter * model::parameter_count(checked_config(profiled));
  const std::int64_t free = free_bytes(DeviceKind::cpu);
  if (wanted > free)
    return {"oom", "its check wants " + core::binary_size(wanted) + ", free " + core::binary_size(free), {}, {}};
  const std::uint64_t seed = std::random_device()();
  const CheckedStep step = checked_step(profiled, settings, seed);
  go_on(settings);
  ModelVerdict verdict = verdict_on(step);
  go_on(settings);
  if (verdict.status != "ok") verdict.reason += fmt::format(" (seed {})", seed);
  return verdict;
} catch (const Error& error) {  // others may have taken memory meanwhile
  if (error.status() != Status::out_of_memory) throw;
  return {"oom", "its check wants memory: " + error.details().got, {}, {}};
}

}  // namespace fovea::program
