// Models in bf16 with fp32 masters, and models with checkpointed activations: errors against double precision, the same
// bits again, memory, refusals.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/float16.h"
#include "core/memory.h"
#include "expect_accumulation.h"
#include "fovea/error.h"
#include "tiny_models.h"

namespace fovea::model {
namespace {

Config with(Config config, DType dtype, bool checkpoints = false) {
  config.dtype = dtype, config.checkpoints_activations = checkpoints;
  return config;
}

struct Tokens {
  std::vector<std::int32_t> tokens, targets;
  Tokens(const Config& config, const Extent& extent, std::uint64_t seed)
      : tokens(tokens_of(config, extent.rows(), seed)), targets(tokens_of(config, extent.rows(), seed + 100)) {}
  operator Batch() const { return {tokens, targets}; }
};

// The plain evaluation is no better than it should be: without its roundings it is the reference.
TEST(MixedModel, ThePlainEvaluationRoundsAndIsRight) {
  const Extent extent{2, 5};
  const ParameterMap map(kTiny);
  const Tokens batch(kTiny, extent, 1);
  const std::vector<float> masters = large_weights(map, 5), weights = rounded_weights(map, masters);
  const ExpectedBatch expected{kTiny, map, batch.tokens, batch.targets, extent.length};
  const std::vector<double> exact(weights.begin(), weights.end());
  const auto plain = plain_answer(expected, masters, {});
  EXPECT_NEAR(mean_of(plain.losses), expected_loss(expected, exact), 0.02);
  EXPECT_NE(static_cast<float>(mean_of(plain.losses)), static_cast<float>(expected_loss(expected, exact)));
  const std::vector<double> gradient = expected_gradient(expected, exact);
  for (const Parameter& one : map.all()) {
    const verification::ErrorSize error = verification::error_of(part_of(one, plain.gradients), part_of(one, gradient));
    EXPECT_LT(error.rel_l2, 0.03) << one.name;
    EXPECT_GT(error.rel_l2, 1e-4) << one.name << " is not rounded";
  }
}

TEST(MixedModel, ErrsNoMoreThanThePlainEvaluation) {
  TinyModels models(DType::bf16);
  for (const std::uint64_t seed : TinyModels::kSeeds) {
    for (const auto& [what, fault] : models.judge({}, seed)) EXPECT_EQ(fault, "") << what << " of model " << seed;
  }
}

TEST(MixedModel, ProductsReadWeightsThatAreRounded) {
  Model model(with(kTiny, DType::bf16), {1, 4}, 3);
  const auto expect_copies = [&model](const std::string& when) {
    for (const Parameter& one : model.map().all()) {
      for (std::int64_t i = one.offset; i < one.offset + one.count(); ++i)
        ASSERT_EQ(model.rounded()[i], core::float_to_bf16(model.weights()[static_cast<std::size_t>(i)])) << when;
    }
  };
  expect_copies("at first");
  model.write(State::weights, large_weights(model.map(), 4), {});
  expect_copies("after a write");
  const Tokens batch(kTiny, {1, 4}, 1);
  model.forward_backward(batch, 1.0, on(1));
  const std::vector<float> before = copy(model.weights());
  update(model, {}, 1e-3, 0, on(2));
  EXPECT_NE(copy(model.weights()), before);
  expect_copies("after a step");
  EXPECT_EQ(Model(kTiny, {1, 4}, 3).rounded(), nullptr);
}

TEST(MixedModel, SmallStepsAreNotLost) {
  Model model(with(kTiny, DType::bf16), {1, 4}, 3);
  const Tokens batch(kTiny, {1, 4}, 1);
  model.forward_backward(batch, 1.0, on(1));
  const std::vector<float> before = copy(model.weights());
  for (int step = 0; step < 3; ++step) update(model, {.weight_decay = 0}, 1e-6, step, on(1));
  std::int64_t moved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) moved += model.weights()[i] != before[i];
  EXPECT_GT(moved, model.map().count() / 2);
}

std::vector<float> weights_after_steps(const Config& config, int threads) {
  const Extent extent{3, 32};
  Model model(config, extent, 9);
  for (int step = 0; step < 4; ++step) {
    const Tokens batch(config, extent, static_cast<std::uint64_t>(step));
    model.forward_backward(batch, 1.0, on(threads));
    update(model, {}, 1e-2, step, on(threads));
  }
  return copy(model.weights());
}

TEST(MixedModel, StepsHaveTheSameBitsForAnyNumberOfThreads) {
  const Config config = with(kSmall, DType::bf16);
  const std::vector<float> one = weights_after_steps(config, 1);
  EXPECT_NE(one, weights_after_steps(kSmall, 1)) << "fp32";
  for (const int threads : {1, 2, 3, 5}) EXPECT_EQ(weights_after_steps(config, threads), one) << threads << " threads";
}

TEST(MixedModel, CheckpointedActivationsChangeNoBit) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const std::int64_t layers : {1, 2, 5}) {
      Config config = with(kSmall, dtype);
      config.layers = layers;
      const std::vector<float> kept = weights_after_steps(config, 2);
      EXPECT_EQ(weights_after_steps(with(config, dtype, true), 3), kept) << layers << " layers";
    }
  }
}

// Each token has the same bf16 numbers in both; only fp32 sums over tokens differ.
TEST(MixedModel, AccumulationEqualsOneBatch) { expect_accumulation_equals_one_batch(with(kSmall, DType::bf16, true)); }

TEST(MixedModel, LearnsARepeatedBatch) {
  const Extent extent{2, 16};
  Model model(with(kSmall, DType::bf16, true), extent, 1);
  const Tokens batch(kSmall, extent, 1);
  double loss = 0;
  for (int step = 0; step < 150; ++step) {
    loss = model.forward_backward(batch, 1.0, on(2));
    update(model, {.weight_decay = 0}, 1e-2, step, on(2));
  }
  EXPECT_LT(loss, 0.1);
}

// Products alone write the gradient of every matrix that they read, and nothing else. The next step is as without.
TEST(MixedModel, ProductsAloneLeaveTheModelAsItIs) {
  const Extent extent{2, 32};
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const bool checkpoints : {false, true}) {
      Model model(with(kSmall, dtype, checkpoints), extent, 9), other(with(kSmall, dtype), extent, 9);
      const Tokens batch(kSmall, extent, 1);
      model.forward_backward(batch, 1.0, on(2));
      std::ranges::fill(model.gradients(), 0.0f);
      model.run_products(Pass::forward, on(2));
      model.run_products(Pass::backward, on(2));
      for (const Parameter& one : model.map().all()) {
        const std::span<float> gradient =
            model.gradients().subspan(static_cast<std::size_t>(one.offset), static_cast<std::size_t>(one.count()));
        const bool is_read = !one.is_vector && one.offset != model.map().embedding;
        EXPECT_EQ(std::ranges::any_of(gradient, [](float value) { return value != 0; }), is_read) << one.name;
      }
      EXPECT_EQ(copy(model.weights()), copy(other.weights()));
      EXPECT_EQ(model.forward_backward(batch, 1.0, on(2)), other.forward_backward(batch, 1.0, on(2)));
      EXPECT_EQ(copy(model.gradients()), copy(other.gradients()));
    }
  }
}

MemoryPlan plan_of(const Config& config, const Extent& extent) {
  return {config, extent, ParameterMap(config), Calls(config, extent)};
}

TEST(MixedModel, TakesTheMemoryThatIsPlanned) {
  const Extent extent{2, 32};
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const bool checkpoints : {false, true}) {
      core::release_cached_memory();
      const Config config = with(kSmall, dtype, checkpoints);
      const MemoryPlan plan = plan_of(config, extent);
      const std::int64_t before = core::memory_count().current;
      Model model(config, extent, 0);
      EXPECT_EQ(core::memory_count().current - before, plan.total_bytes);
      core::reset_memory_peak();
      const Tokens batch(config, extent, 1);
      model.forward_backward(batch, 1.0, on(2));
      update(model, {}, 1e-3, 0, on(2));
      model.run_products(Pass::forward, on(2));
      model.run_products(Pass::backward, on(2));
      EXPECT_EQ(core::memory_count().peak - before, plan.total_bytes) << "a step takes no memory beside the plan's";
    }
  }
}

TEST(MixedModel, NeedsLessMemory) {
  Config config = kSmall;
  config.layers = 20;
  const Extent extent{4, 32};
  const MemoryPlan fp32 = plan_of(config, extent), bf16 = plan_of(with(config, DType::bf16), extent),
                   checkpointed = plan_of(with(config, DType::bf16, true), extent);
  const std::int64_t floats = ParameterMap(config).floats();
  EXPECT_EQ(fp32.state_bytes, 16 * floats);
  EXPECT_NEAR(static_cast<double>(bf16.state_bytes), static_cast<double>(18 * floats), 64) << "with a copy in bf16";
  EXPECT_LT(static_cast<double>(bf16.activation_bytes), 0.62 * static_cast<double>(fp32.activation_bytes));
  // A checkpointed block keeps its part of the stream, [rows, width] in fp32.
  const std::int64_t rows = extent.rows(), stream = 4 * rows * config.width;
  Config one = with(config, DType::bf16);
  one.layers = 1;
  EXPECT_EQ(checkpointed.activation_bytes, plan_of(one, extent).activation_bytes + 19 * stream);
  EXPECT_EQ(checkpointed.state_bytes, bf16.state_bytes);
}

TEST(MixedModel, ABlockThatRunsAgainIsOnePart) {
  Model model(with(kTiny, DType::bf16, true), {1, 4}, 0);
  const Tokens batch(kTiny, {1, 4}, 1);
  std::string names;
  double flops = 0;
  model.forward(batch, 1, on(1));
  model.watch_parts([&](const PassPart& part) {
    names += std::string(part.name) + " ";
    flops += part.flops;
  });
  model.backward(batch, on(1));
  const std::string back = "down swiglu down gate_up norm out attention rotary out qkv norm ";
  EXPECT_EQ(names, "head norm " + back + "recompute " + back + "embedding ");
  EXPECT_DOUBLE_EQ(flops, model.backward_flops());
  EXPECT_GT(model.backward_flops(), Model(with(kTiny, DType::bf16), {1, 4}, 0).backward_flops());
}

TEST(MixedModel, RefusesFp16) {
  try {
    Model(with(kTiny, DType::fp16), {1, 4}, 0);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_EQ(error.details().argument, "dtype");
  }
}

}  // namespace
}  // namespace fovea::model
