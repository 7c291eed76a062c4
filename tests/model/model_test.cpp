// A tiny model: its loss and every gradient against double precision, accumulation, threads, steps, refusals.
#include "model/model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>

#include "core/memory.h"
#include "expect_accumulation.h"
#include "expected_model.h"
#include "fovea/error.h"
#include "model/optimizer.h"
#include "model/schedule.h"
#include "small_models.h"
#include "verification/model/evaluation.h"

namespace fovea::model {
namespace {

TEST(Model, LossAndGradientsAreRight) {
  const Extent extent{2, 5};
  const std::vector<std::int32_t> tokens = tokens_of(kTiny, extent.rows(), 1),
                                  targets = tokens_of(kTiny, extent.rows(), 2);
  Model model(kTiny, extent, 0);
  model.write(State::weights, large_weights(model.map(), 5), {});
  const std::vector<double> weights(model.weights().begin(), model.weights().end());
  const ExpectedBatch batch{kTiny, model.map(), tokens, targets, extent.length};
  EXPECT_NEAR(model.forward_backward({tokens, targets}, 1.0, on(2)), expected_loss(batch, weights), 1e-6);
  const std::vector<double> expected = expected_gradient(batch, weights);
  for (const Parameter& one : model.map().all()) {
    double largest = 0;
    for (std::int64_t i = one.offset; i < one.offset + one.count(); ++i)
      largest = std::max(largest, std::abs(expected[static_cast<std::size_t>(i)]));
    EXPECT_GT(largest, 1e-4) << one.name << " has no gradient to compare";
    for (std::int64_t i = one.offset; i < one.offset + one.count(); ++i)
      ASSERT_NEAR(model.gradients()[static_cast<std::size_t>(i)], expected[static_cast<std::size_t>(i)],
                  1e-5 * std::max(largest, 0.1))
          << one.name << " " << i - one.offset;
  }
}

// The reference of `fovea verify` is another evaluation, with derivatives by their formulas.
TEST(Model, TheReferenceOfVerifyIsRight) {
  const Extent extent{2, 5};
  verification::ModelInputs inputs(kTiny);
  inputs.extent = extent;
  inputs.tokens = tokens_of(kTiny, extent.rows(), 1), inputs.targets = tokens_of(kTiny, extent.rows(), 2);
  inputs.weights = large_weights(inputs.map, 5);
  const ExpectedBatch batch{kTiny, inputs.map, inputs.tokens, inputs.targets, extent.length};
  const std::vector<double> weights(inputs.weights.begin(), inputs.weights.end());
  const auto answer = verification::evaluate(inputs, Pass::backward, verification::ExactArithmetic());
  double sum = 0;
  for (const double loss : answer.losses.values) sum += loss;
  EXPECT_NEAR(sum / 10, expected_loss(batch, weights), 1e-12);
  const std::vector<double> gradient = expected_gradient(batch, weights);
  for (std::size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(answer.gradients[i], gradient[i], 1e-8) << i;
  ExpectedState state{weights, std::vector<double>(weights.size()), std::vector<double>(weights.size())};
  verification::ModelUpdate update{.learning_rate = 1e-2, .step = 3};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    update.first_moment.push_back(static_cast<float>(0.01 * std::sin(static_cast<double>(i))));
    update.second_moment.push_back(1e-4f);
  }
  state.m.assign(update.first_moment.begin(), update.first_moment.end());
  state.v.assign(update.second_moment.begin(), update.second_moment.end());
  expected_step(inputs.map, update.settings, update.learning_rate, update.step, answer.gradients, state);
  const std::vector<double> updated = verification::updated(inputs, update, answer.gradients);
  for (std::size_t i = 0; i < updated.size(); ++i) ASSERT_NEAR(updated[i], state.weights[i], 1e-14) << i;
}

TEST(Model, LossesAreThoseOfEachToken) {
  const Extent extent{3, 7};
  const std::vector<std::int32_t> tokens = tokens_of(kTiny, extent.rows(), 1),
                                  targets = tokens_of(kTiny, extent.rows(), 2);
  Model model(kTiny, extent, 0);
  const std::vector<double> losses = model.losses({tokens, targets}, on(1));
  ASSERT_EQ(losses.size(), tokens.size());
  double sum = 0;
  for (const double one : losses) sum += one;
  EXPECT_NEAR(sum / static_cast<double>(losses.size()), std::log(11.0), 0.05) << "small weights know nothing yet";
  EXPECT_EQ(sum / static_cast<double>(losses.size()), model.forward_backward({tokens, targets}, 1.0, on(1)));
}

TEST(Model, AccumulationEqualsOneBatch) { expect_accumulation_equals_one_batch(kSmall); }

std::vector<float> weights_after_steps(int threads) {
  const Extent extent{3, 32};
  Model model(kSmall, extent, 9);
  for (int step = 0; step < 4; ++step) {
    const auto seed = static_cast<std::uint64_t>(step);
    const std::vector<std::int32_t> tokens = tokens_of(kSmall, extent.rows(), seed),
                                    targets = tokens_of(kSmall, extent.rows(), seed + 100);
    model.forward_backward({tokens, targets}, 1.0, on(threads));
    update(model, {}, 1e-2, step, on(threads));
  }
  return copy(model.weights());
}

TEST(Model, StepsHaveTheSameBitsForAnyNumberOfThreads) {
  const std::vector<float> one = weights_after_steps(1);
  EXPECT_NE(one, copy(Model(kSmall, {3, 32}, 9).weights()));
  for (const int threads : {1, 2, 3, 5}) EXPECT_EQ(weights_after_steps(threads), one) << threads << " threads";
}

TEST(Model, LearnsARepeatedBatch) {
  const Extent extent{2, 16};
  Model model(kSmall, extent, 1);
  const std::vector<std::int32_t> tokens = tokens_of(kSmall, extent.rows(), 1),
                                  targets = tokens_of(kSmall, extent.rows(), 2);
  double loss = 0;
  for (int step = 0; step < 150; ++step) {
    loss = model.forward_backward({tokens, targets}, 1.0, on(2));
    update(model, {.weight_decay = 0}, 1e-2, step, on(2));
  }
  EXPECT_LT(loss, 0.1);
}

TEST(Model, ClippingScalesGradientsToTheLargestNorm) {
  const Extent extent{1, 8};
  const std::vector<std::int32_t> tokens = tokens_of(kTiny, 8, 1), targets = tokens_of(kTiny, 8, 2);
  Model model(kTiny, extent, 0);
  model.forward_backward({tokens, targets}, 1000.0, on(1));
  double squares = 0;
  for (const float one : model.gradients()) squares += static_cast<double>(one) * one;
  const double norm = update(model, {.largest_norm = 0.5}, 1e-3, 0, on(1));
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-5 * norm);
  ASSERT_GT(norm, 1.0);
  double moments = 0;  // m = (1 - beta1) times the clipped gradient
  for (const float one : model.first_moment()) moments += static_cast<double>(one) * one;
  EXPECT_NEAR(std::sqrt(moments), 0.1 * 0.5, 1e-6);
}

TEST(Model, GradientsThatAreNotFiniteChangeNothing) {
  Model model(kTiny, {1, 4}, 0);
  const std::vector<float> before = copy(model.weights());
  model.gradients()[3] = NAN;
  EXPECT_TRUE(std::isnan(update(model, {}, 1e-3, 0, on(1))));
  EXPECT_EQ(copy(model.weights()), before);
}

TEST(Model, MemoryIsPlannedBeforeItIsTaken) {
  core::release_cached_memory();
  const Extent extent{2, 16};
  const ParameterMap map(kSmall);
  const MemoryPlan plan(kSmall, extent, map, Calls(kSmall, extent));
  const std::int64_t before = core::memory_count().current;
  Model model(kSmall, extent, 0);
  EXPECT_EQ(core::memory_count().current - before, plan.total_bytes);
  EXPECT_EQ(plan.state_bytes, 4 * 4 * map.floats());
  core::reset_memory_peak();
  const std::vector<std::int32_t> tokens = tokens_of(kSmall, extent.rows(), 1);
  model.forward_backward({tokens, tokens}, 1.0, on(2));
  EXPECT_EQ(core::memory_count().peak - before, plan.total_bytes) << "a step takes no memory beside the plan's";
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    return error.details().argument + ": " + error.details().problem;
  }
  return "accepted";
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep freed memory for a while
// Bytes of this process that are in memory.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Model, GivesItsMemoryBackToTheSystem) {
  Config config = kTiny;
  config.width = 480, config.vocabulary = 4000;
  const std::int64_t before = resident_bytes();
  {
    const Model model(config, {1, 4}, 0);
    ASSERT_GT(resident_bytes(), before + (std::int64_t{48} << 20));
  }
  EXPECT_LT(resident_bytes(), before + (std::int64_t{16} << 20));
}
#endif

TEST(Model, RefusesBadSizesAndTokens) {
  const auto with = [](auto change) {
    Config config = kTiny;
    change(config);
    return refusal([&] { Model(config, {1, 4}, 0); });
  };
  EXPECT_EQ(with([](Config& c) { c.heads = 5; }), "heads: the width does not split into heads");
  EXPECT_EQ(with([](Config& c) { c.heads = 4; }), "heads: the rotary embedding turns pairs of columns");
  EXPECT_EQ(with([](Config& c) { c.layers = 0; }), "layers: no size of a model");
  EXPECT_EQ(with([](Config& c) { c.vocabulary = -3; }), "vocabulary: no size of a model");
  EXPECT_EQ(with([](Config& c) { c.theta = NAN; }), "theta: no base of a rotary embedding");
  EXPECT_EQ(with([](Config& c) { c.epsilon = 0; }), "epsilon: not a positive number");
  EXPECT_EQ(with([](Config& c) { c.context = std::int64_t{1} << 30; }),
            "context: beyond the positions of the rotary embedding");
  EXPECT_EQ(with([](Config& c) { c.hidden = std::int64_t{1} << 60; }), "width: more parameters than a machine holds");
  EXPECT_EQ(refusal([] { Model(kTiny, {0, 4}, 0); }), "batch: no sequences");
  EXPECT_EQ(refusal([] { Model(kTiny, {1, 9}, 0); }), "length: a sequence that does not fit the context");
  Model model(kTiny, {1, 4}, 0);
  const std::vector<std::int32_t> right{0, 1, 2, 10}, few{1, 2}, high{0, 1, 2, 11}, low{0, -1, 2, 3};
  EXPECT_EQ(refusal([&] { model.losses({few, right}, on(1)); }), "tokens: a batch of another size");
  EXPECT_EQ(refusal([&] { model.losses({right, high}, on(1)); }), "targets: a token outside of the vocabulary");
  EXPECT_EQ(refusal([&] {
              model.forward_backward({low, right}, 1, on(1));
            }),
            "tokens: a token outside of the vocabulary");
}

TEST(Model, RefusesAGpuThatIsNotThereBeforeItTakesMemory) {
  const std::int64_t before = core::memory_count().current;
  try {
    Model(kTiny, {1, 4}, 0, {DeviceKind::cuda, 60});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_TRUE(error.status() == Status::unsupported || error.status() == Status::invalid_argument) << error.what();
    EXPECT_FALSE(error.details().got.empty()) << error.what();
  }
  EXPECT_EQ(core::memory_count().current, before);
}

TEST(Model, StateIsReadAndWrittenWhole) {
  Model model(kTiny, {1, 4}, 0);
  std::vector<float> values(static_cast<std::size_t>(model.map().floats()));
  for (const State state : {State::weights, State::gradients, State::first_moment, State::second_moment}) {
    values[7] += 1.5f;
    model.write(state, values, {});
    EXPECT_EQ(model.read(state, {}), values);
    EXPECT_EQ(copy(model.state(state)), values);
  }
  values.pop_back();
  EXPECT_EQ(refusal([&] { model.write(State::weights, values, {}); }), "values: an array of another size");
}

TEST(Model, AStepInHalvesHasTheSameBits) {
  const Extent extent{2, 16};
  const std::vector<std::int32_t> tokens = tokens_of(kSmall, extent.rows(), 1),
                                  targets = tokens_of(kSmall, extent.rows(), 2);
  Model whole(kSmall, extent, 4), halves(kSmall, extent, 4);
  const double loss = whole.forward_backward({tokens, targets}, 1.0, on(2)), norm = update(whole, {}, 1e-2, 0, on(2));
  halves.begin_forward({tokens, targets}, 1.0, on(2));
  halves.backward({tokens, targets}, on(2));
  begin_update(halves, {}, 1e-2, 0, on(2));
  halves.wait(on(2));
  EXPECT_EQ(halves.mean_loss(on(2)), loss);
  EXPECT_EQ(gradient_norm(halves, on(2)), norm);
  EXPECT_EQ(copy(halves.weights()), copy(whole.weights()));
}

TEST(Model, EveryThreadBlockOfANormHasRows) {
  for (const std::int64_t rows : {1, 2, 3, 513, 2048, 70000}) {
    const std::int64_t sums = partial_count(DeviceKind::cuda, rows, 48) / 48;
    EXPECT_GE(sums, std::min<std::int64_t>(rows, 132)) << "fewer thread blocks than SMs";
    EXPECT_LE(sums, std::min<std::int64_t>(rows, 4096)) << "a column's sum adds many rows";
  }
}

TEST(Model, AThreadBlockSumsSquaresOfManyGradients) {
  EXPECT_EQ(square_sum_count(DeviceKind::cuda, kSquares), 1);
  EXPECT_EQ(square_sum_count(DeviceKind::cuda, kSquares + 1), 2);
  EXPECT_EQ(square_sum_count(DeviceKind::cpu, 1'000'000), 0);
}

TEST(Model, PresetsHaveThePublishedSizes) {
  const auto millions = [](std::string_view name) {
    return std::round(static_cast<double>(ParameterMap(find_preset(name)->config).count()) / 1e5) / 10;
  };
  EXPECT_EQ(millions("report-d1:sm"), 128.6);
  EXPECT_EQ(millions("report-d1:md"), 423.2);
  EXPECT_EQ(millions("report-d1:lg"), 969.4);
  EXPECT_NE(find_preset("cs336-2025:xl")->config, find_preset("cs336-2026:xl")->config);
  EXPECT_EQ(find_preset("xl"), nullptr);
  for (const Preset& one : presets()) EXPECT_NO_THROW(check(one.config, {4, 512}, "test")) << one.name;
}

TEST(Model, OperationsAreThoseOfTheProductsAndOfAttention) {
  constexpr double kRows = 3 * 8, kWeights = 12 * (4 * 12 + 3 * 10) * 2 + 11 * 12;
  constexpr double kPairs = 3 * 2 * (8 * 9 / 2) * 3;  // sequences, layers, visible pairs, heads
  const Model model(kTiny, {3, 8}, 0);
  EXPECT_DOUBLE_EQ(model.forward_flops(), 2 * kRows * kWeights + kPairs * 4 * 4);
  EXPECT_DOUBLE_EQ(model.backward_flops(), 4 * kRows * kWeights + kPairs * 10 * 4);
}

TEST(Model, TellsOfItsPartsInTheirOrder) {
  Model model(kTiny, {1, 4}, 0);
  std::string names;
  double flops = 0;
  model.watch_parts([&](const PassPart& part) {
    names += std::string(part.name) + " ";
    flops += part.flops;
    EXPECT_GT(part.bytes, 0) << part.name;
  });
  const std::vector<std::int32_t> tokens = tokens_of(kTiny, 4, 1);
  model.forward({tokens, tokens}, 1, on(1));
  const std::string block = "norm qkv rotary attention out norm gate_up swiglu down ";
  EXPECT_EQ(names, "embedding " + block + block + "norm head loss ");
  EXPECT_DOUBLE_EQ(flops, model.forward_flops());
  names.clear(), flops = 0;
  model.backward({tokens, tokens}, on(1));
  const std::string back = "down swiglu down gate_up norm out attention rotary out qkv norm ";
  EXPECT_EQ(names, "head norm " + back + back + "embedding ");
  EXPECT_DOUBLE_EQ(flops, model.backward_flops());
}

TEST(Model, TheScheduleWarmsUpAndFalls) {
  const Schedule s{.largest = 1e-3, .least = 1e-4, .warm_up = 10, .steps = 110};
  EXPECT_DOUBLE_EQ(learning_rate(s, 0), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(s, 9), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 10), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 60), 5.5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(s, 110), 1e-4);
  for (std::int64_t step = 10; step < 120; ++step) EXPECT_LE(learning_rate(s, step + 1), learning_rate(s, step));
}

}  // namespace
}  // namespace fovea::model
