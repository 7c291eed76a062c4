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

#include "core/names.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "fovea/error.h"
#include "model/model.h"
#include "model/optimizer.h"
#include "model/tiny_models.h"
#include "model_verdicts.h"
#include "on_device.h"
#include "threads_at_once.h"

namespace fovea::cuda {
namespace {

using model::Config;
using model::Extent;
using model::Model;
using model::Outcome;
using model::outcome_on;
using model::State;
using Values = std::vector<float>;
using Tokens = std::vector<std::int32_t>;

constexpr double kLearningRate = 1e-2;
// Several tiles of attention and of the products, and columns that are no multiple of a tile.
constexpr Config kMedium{.vocabulary = 1000, .layers = 2, .width = 128, .heads = 2, .hidden = 344, .context = 256};

Verdicts verdicts;

Device gpu() { return {DeviceKind::cuda, current_device()}; }

void check_tiny_models(DType dtype) {
  model::TinyModels models(dtype);
  for (const std::uint64_t seed : model::TinyModels::kSeeds) {
    for (const auto& [what, fault] : models.judge(gpu(), seed))
      verdicts.judge("tiny " + std::string(core::name_of(dtype)) + " " + std::to_string(seed) + " " + what, fault);
  }
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

// Of a model as training begins.
struct Medium {
  Extent extent{3, 200};
  model::ParameterMap map{kMedium};
  Values first = Values(static_cast<std::size_t>(map.floats()));

  Medium() { model::initialize(map, 7, first); }
  Outcome on(Device device, DType dtype, bool checkpoints, const Values& weights, void* stream = nullptr) const {
    Config config = kMedium;
    config.dtype = dtype, config.checkpoints_activations = checkpoints;
    return outcome_on(device, config, extent, weights, 1, stream);
  }
};

void judge_same_bits(const std::string& what, const Outcome& a, const Outcome& b) {
  const bool same = a.loss == b.loss && a.norm == b.norm && a.gradients == b.gradients && a.weights == b.weights;
  verdicts.judge(what, same ? "" : "other bits");
}

// On another stream, and with checkpointed activations.
void check_medium_bits(const Medium& medium, DType dtype, const Outcome& got) {
  const DeviceStreams streams;
  const std::string name = "medium " + std::string(core::name_of(dtype));
  judge_same_bits(name + " again, on another stream", medium.on(gpu(), dtype, false, medium.first, streams.get(0)),
                  got);
  judge_same_bits(name + " with checkpointed activations", medium.on(gpu(), dtype, true, medium.first), got);
}

// The errors of fp32 are less than 1e-6 here; a wrong pass is off by far more.
void check_medium_fp32(const Medium& medium) {
  const Outcome cpu = medium.on({}, DType::fp32, false, medium.first),
                got = medium.on(gpu(), DType::fp32, false, medium.first);
  verdicts.judge("medium loss", std::abs(got.loss - cpu.loss) <= 1e-5 ? "" : std::to_string(got.loss));
  verdicts.judge("medium norm", std::abs(got.norm - cpu.norm) <= 1e-5 * cpu.norm ? "" : std::to_string(got.norm));
  for (const model::Parameter& one : medium.map.all()) {
    const double off = distance(one, got.gradients, cpu.gradients);
    verdicts.judge("medium gradient of " + one.name, off <= 1e-5 ? "" : "off by " + std::to_string(off));
  }
  check_medium_bits(medium, DType::fp32, got);
}

// The CPU engine is the reference in fp32, on the rounded weights, and the plain evaluation in bf16. The bf16 errors
// are a thousand times those of fp32.
void check_medium_bf16(const Medium& medium) {
  const Outcome reference = medium.on({}, DType::fp32, false, model::rounded_weights(medium.map, medium.first)),
                plain = medium.on({}, DType::bf16, false, medium.first),
                got = medium.on(gpu(), DType::bf16, false, medium.first);
  const auto judge = [](const std::string& what, const verification::RowValues& answer,
                        const verification::RowValues& exact, const verification::RowValues& evaluated, double factor) {
    verdicts.judge("medium bf16 " + what,
                   model::fault_of(answer, exact, verification::error_of(evaluated, exact), factor, DType::bf16));
  };
  judge("losses", model::rows_of(got.losses, 1), model::rows_of(reference.losses, 1), model::rows_of(plain.losses, 1),
        2);
  for (const model::Parameter& one : medium.map.all())
    judge("gradient of " + one.name, model::part_of(one, got.gradients), model::part_of(one, reference.gradients),
          model::part_of(one, plain.gradients), 3);
  check_medium_bits(medium, DType::bf16, got);
}

void check_medium_model() {
  const Medium medium;
  check_medium_fp32(medium);
  check_medium_bf16(medium);
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
  for (const DType dtype : {DType::fp32, DType::bf16}) check_tiny_models(dtype);
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
