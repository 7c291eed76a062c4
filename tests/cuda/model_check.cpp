// The model on the device: its passes, its loss, all gradients and three steps against double precision; a larger one
// against the CPU; the same bits again; nothing but reading waits for the device; refusals.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "core/random.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "fovea/error.h"
#include "model/expected_model.h"
#include "model/model.h"
#include "model/optimizer.h"
#include "model/small_models.h"
#include "model_verdicts.h"
#include "on_device.h"
#include "threads_at_once.h"

namespace fovea::cuda {
namespace {

using model::Config;
using model::Extent;
using model::Model;
using model::State;
using Values = std::vector<float>;
using Tokens = std::vector<std::int32_t>;

constexpr double kLearningRate = 1e-2;
constexpr int kSteps = 3;
// Several tiles of attention and of the products, and columns that are no multiple of a tile.
constexpr Config kMedium{.vocabulary = 1000, .layers = 2, .width = 128, .heads = 2, .hidden = 344, .context = 256};

Verdicts verdicts;

Device gpu() { return {DeviceKind::cuda, current_device()}; }

// What a model has after some steps with batches of their own.
struct Outcome {
  double loss = 0, norm = 0;  // of the first step
  Values gradients, weights;  // gradients of the first step, weights after the last one
};

Outcome outcome_on(Device device, const Config& config, const Extent& extent, const Values& weights, std::uint64_t seed,
                   void* stream = nullptr) {
  Model model(config, extent, 0, device);
  const core::RunContext context{.threads = 2, .stream = stream};
  model.write(State::weights, weights, context);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    const std::uint64_t drawn = seed + 10 * static_cast<std::uint64_t>(step);
    const Tokens tokens = model::tokens_of(config, extent.rows(), drawn),
                 targets = model::tokens_of(config, extent.rows(), drawn + 1);
    model::clear_gradients(model, context);
    const double loss = model.add_gradients({tokens, targets}, 1.0, context);
    if (step == 0) outcome.loss = loss, outcome.gradients = model.read(State::gradients, context);
    const double norm = model::update(model, {}, kLearningRate, step, context);
    if (step == 0) outcome.norm = norm;
  }
  outcome.weights = model.read(State::weights, context);
  return outcome;
}

struct Expected {
  double loss = 0;
  std::vector<double> gradients, weights;
};

Expected expected_outcome(const Config& config, const model::ParameterMap& map, const Extent& extent,
                          const Values& weights, std::uint64_t seed) {
  Expected expected;
  model::ExpectedState state{{weights.begin(), weights.end()}, {}, {}};
  state.m.resize(weights.size()), state.v.resize(weights.size());
  for (int step = 0; step < kSteps; ++step) {
    const std::uint64_t drawn = seed + 10 * static_cast<std::uint64_t>(step);
    const Tokens tokens = model::tokens_of(config, extent.rows(), drawn),
                 targets = model::tokens_of(config, extent.rows(), drawn + 1);
    const model::ExpectedBatch batch{config, map, tokens, targets, extent.length};
    const std::vector<double> gradient = model::expected_gradient(batch, state.weights);
    if (step == 0) expected.loss = model::expected_loss(batch, state.weights), expected.gradients = gradient;
    model::expected_step(map, {}, kLearningRate, step, gradient, state);
  }
  expected.weights = state.weights;
  return expected;
}

template <class Number>
verification::RowValues part_of(const model::Parameter& one, const std::vector<Number>& all) {
  const auto first = all.begin() + one.offset;
  return rows_of(std::vector<Number>(first, first + one.count()), one.columns);
}

// The CPU engine's errors in the tiny model, of its loss and of each parameter.
struct PlainErrors {
  double loss = 0;
  std::vector<verification::ErrorSize> gradients, weights;
};

// Errors of few numbers are a matter of luck. So the largest of several models counts, and of several neighbours of
// each: every weight is moved by up to 2^-16 of itself. A neighbour is as hard a problem, and has other roundings.
class TinyModels {
 public:
  static constexpr std::uint64_t kSeeds = 4;

  TinyModels() {
    errors_.gradients.resize(map_.all().size()), errors_.weights.resize(map_.all().size());
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) measure(seed, 0, kNeighbours);
  }

  void check(std::uint64_t seed) {
    const Values first = neighbour(seed, 0);
    const Outcome got = outcome_on(gpu(), model::kTiny, kExtent, first, 100 * seed);
    const Expected expected = expected_outcome(model::kTiny, map_, kExtent, first, 100 * seed);
    // The CPU engine may have been lucky again: before an answer fails, more is measured.
    if (std::ranges::any_of(faults(got, expected), [](const Fault& one) { return !one.text.empty(); }))
      measure(seed, kNeighbours, kMostNeighbours);
    for (const Fault& one : faults(got, expected))
      verdicts.judge("tiny " + std::to_string(seed) + " " + one.what, one.text);
  }

 private:
  static constexpr Extent kExtent{2, 5};
  static constexpr std::uint64_t kNeighbours = 4, kMostNeighbours = 16;

  Values neighbour(std::uint64_t seed, std::uint64_t number) const {
    Values weights = model::large_weights(map_, seed);
    for (std::size_t i = 0; number > 0 && i < weights.size(); ++i) {
      const double random = static_cast<double>(core::philox(seed, 3 + number, i)[0]) * 0x1p-31 - 1;  // -1 to 1
      weights[i] = static_cast<float>(weights[i] * (1 + 0x1p-16 * random));
    }
    return weights;
  }

  void measure(std::uint64_t seed, std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t number = begin; number < end; ++number) {
      const Values first = neighbour(seed, number);
      const Expected expected = expected_outcome(model::kTiny, map_, kExtent, first, 100 * seed);
      const Outcome plain = outcome_on({}, model::kTiny, kExtent, first, 100 * seed);
      errors_.loss = std::max(errors_.loss, std::abs(plain.loss - expected.loss));
      for (std::size_t i = 0; i < map_.all().size(); ++i) {
        const model::Parameter& one = map_.all()[i];
        errors_.gradients[i].raise_to(
            verification::error_of(part_of(one, plain.gradients), part_of(one, expected.gradients)));
        errors_.weights[i].raise_to(
            verification::error_of(part_of(one, plain.weights), part_of(one, expected.weights)));
      }
    }
  }

  // What is compared, and what is wrong with it; empty if nothing is.
  struct Fault {
    std::string what, text;
  };
  std::vector<Fault> faults(const Outcome& got, const Expected& expected) const {
    const double allowed = 2 * errors_.loss + verification::half_ulp(DType::fp32, expected.loss);
    std::vector<Fault> all{{"loss", std::abs(got.loss - expected.loss) <= allowed ? "" : std::to_string(got.loss)}};
    for (std::size_t i = 0; i < map_.all().size(); ++i) {
      const model::Parameter& one = map_.all()[i];
      all.push_back({"gradient of " + one.name,
                     fault_of(part_of(one, got.gradients), part_of(one, expected.gradients), errors_.gradients[i], 3)});
      all.push_back({"three steps of " + one.name,
                     fault_of(part_of(one, got.weights), part_of(one, expected.weights), errors_.weights[i], 3)});
    }
    return all;
  }

  model::ParameterMap map_{model::kTiny};
  PlainErrors errors_;
};

void check_tiny_models() {
  TinyModels models;
  for (std::uint64_t seed = 0; seed < TinyModels::kSeeds; ++seed) models.check(seed);
}

// |a - b| / |b| of one parameter.
double distance(const model::Parameter& one, const Values& a, const Values& b) {
  double difference = 0, size = 0;
  for (auto i = static_cast<std::size_t>(one.offset); i < static_cast<std::size_t>(one.offset + one.count()); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

// Of a model as training begins. The errors of fp32 are less than 1e-6 here; a wrong pass is off by far more.
void check_medium_model() {
  const Extent extent{3, 200};
  const model::ParameterMap map(kMedium);
  Values first(static_cast<std::size_t>(map.floats()));
  model::initialize(map, 7, first);
  const Outcome cpu = outcome_on({}, kMedium, extent, first, 1), got = outcome_on(gpu(), kMedium, extent, first, 1);
  verdicts.judge("medium loss", std::abs(got.loss - cpu.loss) <= 1e-5 ? "" : std::to_string(got.loss));
  verdicts.judge("medium norm", std::abs(got.norm - cpu.norm) <= 1e-5 * cpu.norm ? "" : std::to_string(got.norm));
  for (const model::Parameter& one : map.all()) {
    const double off = distance(one, got.gradients, cpu.gradients);
    verdicts.judge("medium gradient of " + one.name, off <= 1e-5 ? "" : "off by " + std::to_string(off));
  }
  const DeviceStreams streams;
  const Outcome again = outcome_on(gpu(), kMedium, extent, first, 1, streams.get(0));
  verdicts.judge("medium again, on another stream", again.loss == got.loss && again.norm == got.norm &&
                                                            again.gradients == got.gradients &&
                                                            again.weights == got.weights
                                                        ? ""
                                                        : "other bits");
}

// A gate in a stream: what is behind it waits until it is opened, or gives up.
struct Gate {
  std::atomic<bool> is_open = false, gave_up = false;
  static void wait(void* data) {
    auto& gate = *static_cast<Gate*>(data);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!gate.is_open && !gate.gave_up) {
      gate.gave_up = std::chrono::steady_clock::now() > end;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
};

void check_that_nothing_waits() {
  const Extent extent{2, 32};
  const DeviceStreams streams;
  const core::RunContext context{.stream = streams.get(current_device())};
  Model model(model::kSmall, extent, 1, gpu());
  const Tokens tokens = model::tokens_of(model::kSmall, extent.rows(), 1),
               targets = model::tokens_of(model::kSmall, extent.rows(), 2);
  const auto step = [&](int number) {
    model::clear_gradients(model, context);
    model.begin_forward({tokens, targets}, 1.0, context);
    model.backward({tokens, targets}, context);
    model::begin_update(model, {}, kLearningRate, number, context);
  };
  step(0);  // loads the kernels
  const double first = model.mean_loss(context);
  Gate gate;
  check(cudaLaunchHostFunc(streams.get(current_device()), Gate::wait, &gate), "cudaLaunchHostFunc");
  step(1);
  gate.is_open = true;
  const double second = model.mean_loss(context);
  verdicts.judge("a step behind a closed gate", gate.gave_up ? "a call waited for the device" : "");
  verdicts.judge("the step behind the gate", second < first ? "" : "the loss of the same batch does not fall");
}

void check_refusals() {
  const auto refused = [](const std::string& what, const std::string& argument, auto call) {
    try {
      call();
      verdicts.judge(what, "not refused");
    } catch (const Error& error) {
      verdicts.judge(what, argument.empty() || error.details().argument == argument ? "" : error.what());
    }
  };
  refused("a device that is not there", "", [] { Model(model::kTiny, {1, 4}, 0, {DeviceKind::cuda, 60}); });
  refused("too much memory", "", [] {
    Config config = model::kTiny;
    config.hidden = std::int64_t{1} << 36;
    Model(config, {1, 4}, 0, gpu());
  });
  Model model(model::kTiny, {1, 4}, 0, gpu());
  const Values before = model.read(State::weights, {});
  const Tokens right{0, 1, 2, 10}, high{0, 1, 2, 11};
  refused("a token outside of the vocabulary", "tokens", [&] { model.losses({high, right}, {}); });
  refused("weights of another size", "values", [&] { model.write(State::weights, Values(3), {}); });
  verdicts.judge("weights after refusals", model.read(State::weights, {}) == before ? "" : "changed");
  verdicts.judge("a model begins as on the CPU",
                 before == Model(model::kTiny, {1, 4}, 0).read(State::weights, {}) ? "" : "other weights");
}

}  // namespace

int check_model(bool tiny) {
  check_tiny_models();
  if (!tiny) {
    check_model_passes(verdicts);
    check_medium_model();
    check_that_nothing_waits();
    check_refusals();
  }
  std::printf("model: %d passed, %d failed\n", verdicts.passed, verdicts.failed);
  return verdicts.failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
