// The same three steps by the model, by double precision and by the plain evaluation.
#include "tiny_models.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fovea::model {
namespace {

constexpr double kLearningRate = 1e-2;
constexpr int kSteps = 3;
constexpr Extent kExtent{2, 5};
constexpr std::uint64_t kNeighbours = 4, kMostNeighbours = 16;

struct StepTokens {
  std::vector<std::int32_t> tokens, targets;
  StepTokens(const Config& config, const Extent& extent, std::uint64_t seed, int step) {
    const std::uint64_t drawn = seed + 10 * static_cast<std::uint64_t>(step);
    tokens = tokens_of(config, extent.rows(), drawn), targets = tokens_of(config, extent.rows(), drawn + 1);
  }
};

Config tiny(DType dtype) {
  Config config = kTiny;
  config.dtype = dtype;
  return config;
}

}  // namespace

verification::ModelAnswer<float> plain_answer(const ExpectedBatch& batch, const std::vector<float>& weights,
                                              const verification::PlainVariant& variant) {
  verification::ModelInputs inputs(batch.config);
  inputs.config.dtype = DType::bf16;
  inputs.extent = {static_cast<std::int64_t>(batch.tokens.size()) / batch.length, batch.length};
  inputs.tokens = batch.tokens, inputs.targets = batch.targets, inputs.weights = weights;
  return verification::evaluate(inputs, Pass::backward, verification::PlainArithmetic(DType::bf16, variant));
}

double mean_of(const verification::Matrix<float>& losses) {
  return std::accumulate(losses.values.begin(), losses.values.end(), 0.0) / static_cast<double>(losses.values.size());
}

Outcome outcome_on(Device device, const Config& config, const Extent& extent, const std::vector<float>& weights,
                   std::uint64_t seed, void* stream) {
  Model model(config, extent, 0, device);
  const core::RunContext context{.threads = 2, .stream = stream};
  model.write(State::weights, weights, context);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    const StepTokens batch(config, extent, seed, step);
    if (step == 0) outcome.losses = model.losses({batch.tokens, batch.targets}, context);
    const double loss = model.forward_backward({batch.tokens, batch.targets}, 1.0, context);
    if (step == 0) outcome.loss = loss, outcome.gradients = model.read(State::gradients, context);
    const double norm = update(model, {}, kLearningRate, step, context);
    if (step == 0) outcome.norm = norm;
  }
  outcome.weights = model.read(State::weights, context);
  return outcome;
}

std::string fault_of(const verification::RowValues& got, const verification::RowValues& reference,
                     const verification::ErrorSize& plain, double factor, DType dtype) {
  if (!(plain.rel_l2 <= most_plain(dtype))) return "the plain evaluation is far from the reference";
  const verification::TensorError error =
      verification::compare("", got, reference, {.factor = factor, .plain = plain, .stored = DType::fp32});
  return error.ok ? "" : error.detail;
}

TinyModels::TinyModels(DType dtype) : config_(tiny(dtype)), map_(config_) {
  errors_.gradients.resize(map_.all().size()), errors_.weights.resize(map_.all().size());
  for (const std::uint64_t seed : kSeeds) measure(seed, 0, kNeighbours);
}

std::vector<TinyModels::Verdict> TinyModels::judge(Device device, std::uint64_t seed) {
  const std::vector<float> first = neighbour(seed, 0);
  const Outcome got = outcome_on(device, config_, kExtent, first, 100 * seed);
  const Expected reference = expected(first, 100 * seed);
  // The plain evaluation may have been lucky again: before an answer fails, more is measured.
  if (std::ranges::any_of(verdicts(got, reference), [](const Verdict& one) { return !one.fault.empty(); }))
    measure(seed, kNeighbours, kMostNeighbours);
  return verdicts(got, reference);
}

std::vector<float> TinyModels::neighbour(std::uint64_t seed, std::uint64_t number) const {
  const double most = config_.dtype == DType::fp32 ? 0x1p-16 : 0x1p-8;
  std::vector<float> weights = large_weights(map_, seed);
  for (std::size_t i = 0; number > 0 && i < weights.size(); ++i) {
    const double random = static_cast<double>(core::philox(seed, 3 + number, i)[0]) * 0x1p-31 - 1;  // -1 to 1
    weights[i] = static_cast<float>(weights[i] * (1 + most * random));
  }
  return weights;
}

TinyModels::Expected TinyModels::expected(const std::vector<float>& first, std::uint64_t seed) const {
  Expected expected;
  ExpectedState state{{first.begin(), first.end()}, {}, {}};
  state.m.resize(first.size()), state.v.resize(first.size());
  for (int step = 0; step < kSteps; ++step) {
    const StepTokens drawn(config_, kExtent, seed, step);
    const ExpectedBatch batch{config_, map_, drawn.tokens, drawn.targets, kExtent.length};
    const std::vector<double> weights =
        config_.dtype == DType::fp32 ? state.weights : rounded_weights(map_, state.weights);
    const std::vector<double> gradient = expected_gradient(batch, weights);
    if (step == 0) expected.loss = expected_loss(batch, weights), expected.gradients = gradient;
    expected_step(map_, {}, kLearningRate, step, gradient, state);
  }
  expected.weights = state.weights;
  return expected;
}

Outcome TinyModels::plain(const std::vector<float>& first, std::uint64_t seed,
                          const verification::PlainVariant& variant) const {
  if (config_.dtype == DType::fp32) return outcome_on({}, config_, kExtent, first, seed);
  Outcome outcome;
  ExpectedState state{{first.begin(), first.end()}, {}, {}};
  state.m.resize(first.size()), state.v.resize(first.size());
  for (int step = 0; step < kSteps; ++step) {
    const StepTokens drawn(config_, kExtent, seed, step);
    const auto answer = plain_answer({config_, map_, drawn.tokens, drawn.targets, kExtent.length},
                                     {state.weights.begin(), state.weights.end()}, variant);
    if (step == 0) outcome.loss = mean_of(answer.losses), outcome.gradients = answer.gradients;
    expected_step(map_, {}, kLearningRate, step, {answer.gradients.begin(), answer.gradients.end()}, state);
  }
  outcome.weights.assign(state.weights.begin(), state.weights.end());
  return outcome;
}

void TinyModels::measure(std::uint64_t seed, std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t number = begin; number < end; ++number) {
    const std::vector<float> first = neighbour(seed, number);
    const Expected reference = expected(first, 100 * seed);
    const Outcome measured = plain(first, 100 * seed, verification::plain_variant(static_cast<std::int64_t>(number)));
    errors_.loss = std::max(errors_.loss, std::abs(measured.loss - reference.loss));
    for (std::size_t i = 0; i < map_.all().size(); ++i) {
      const Parameter& one = map_.all()[i];
      errors_.gradients[i].raise_to(
          verification::error_of(part_of(one, measured.gradients), part_of(one, reference.gradients)));
      errors_.weights[i].raise_to(
          verification::error_of(part_of(one, measured.weights), part_of(one, reference.weights)));
    }
  }
}

std::vector<TinyModels::Verdict> TinyModels::verdicts(const Outcome& got, const Expected& reference) const {
  const double allowed = 2 * errors_.loss + verification::half_ulp(DType::fp32, reference.loss);
  std::vector<Verdict> all{{"loss", std::abs(got.loss - reference.loss) <= allowed ? "" : std::to_string(got.loss)}};
  for (std::size_t i = 0; i < map_.all().size(); ++i) {
    const Parameter& one = map_.all()[i];
    all.push_back({"gradient of " + one.name, fault_of(part_of(one, got.gradients), part_of(one, reference.gradients),
                                                       errors_.gradients[i], 3, config_.dtype)});
    all.push_back({"three steps of " + one.name, fault_of(part_of(one, got.weights), part_of(one, reference.weights),
                                                          errors_.weights[i], 3, config_.dtype)});
  }
  return all;
}

}  // namespace fovea::model
