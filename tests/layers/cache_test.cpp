// A cache of keys and values: token by token equals the whole sequence at once; refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "layer_call.h"

namespace fovea::layers {
namespace {

constexpr std::int64_t kCapacity = 50;

// A cache for a layer, whose rows are NaN until they are written.
struct Cache {
  explicit Cache(const Shape& s)
      : k({s.batch, 1, kCapacity, s.heads_kv * s.dim_qk}, s.dtype, Order::gaps, 0),
        v({s.batch, 1, kCapacity, s.heads_kv * s.dim_v}, s.dtype, Order::gaps, 0),
        latent({s.batch, 1, kCapacity, std::max<std::int64_t>(s.latent_kv + s.dim_shared, 1)}, s.dtype, Order::gaps, 0),
        is_latent(s.kind == LayerKind::mla) {}

  LayerCache at(std::int64_t length) const {
    if (is_latent) return {.latent = latent.view, .length = length};
    return {.k = k.view, .v = v.view, .length = length};
  }
  std::int64_t gaps_written() const { return k.gaps_written() + v.gaps_written() + latent.gaps_written(); }

  TestTensor k, v, latent;
  bool is_latent;
};

template <class View>
View rows_of(View view, std::int64_t first, std::int64_t count) {
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, const char, char>;
  view.data = static_cast<Byte*>(view.data) + first * view.strides[2] * size_of(view.dtype);
  view.sizes[2] = count;
  return view;
}

void run_step(const LayerCall& call, const Cache& cache, std::int64_t first, std::int64_t count) {
  LayerForwardTensors step = call.forward;
  step.x = rows_of(call.forward.x, first, count), step.y = rows_of(call.forward.y, first, count);
  step.saved = {};
  step.cache = cache.at(first);
  LayerOptions options = call.options;
  if (options.mask == Mask::causal) options.mask = Mask::causal_bottom_right;
  layer_forward(step, options);
}

std::vector<Shape> step_shapes() {
  std::vector<Shape> all;
  for (Shape shape : shapes()) {
    if (shape.cross) continue;
    shape.len_q = shape.len_k = 43;
    if (shape.mask.left == Mask::kUnlimited) shape.mask = Mask::causal;
    if (shape.mask.left != Mask::kUnlimited) shape.mask = Mask::window_bottom_right(9, 0);
    all.push_back(shape);
  }
  return all;
}

TEST(LayerCaches, StepByStepEqualsTheWholeSequence) {
  int steps = 0;
  for (Shape shape : step_shapes()) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      shape.dtype = shape.result = dtype;
      const LayerCall whole(shape), stepped(shape);
      whole.run_forward();
      const Cache cache(shape);
      std::int64_t done = 0;
      for (const std::int64_t count : {5, 1, 1, 0, 17, 1, 18}) {
        run_step(stepped, cache, done, count);
        done += count, ++steps;
      }
      ASSERT_EQ(done, shape.len_q);
      const std::vector<float> expected = whole.values("y"), got = stepped.values("y");
      float largest = 0;
      for (const float value : expected) largest = std::max(largest, std::abs(value));
      const float tolerance = largest * (dtype == DType::fp32 ? 3e-6f : dtype == DType::fp16 ? 2e-3f : 1.6e-2f);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], tolerance) << to_string(shape.kind) << " " << i;
      EXPECT_EQ(cache.gaps_written() + stepped.gaps_written(), 0);
    }
  }
  EXPECT_GE(steps, 7 * 3 * 10);
}

// DeepSeek's form keeps latent and shared key, whatever the number of heads.
TEST(LayerCaches, ATokenOfLatentAttentionIsItsLatentAndTheSharedKey) {
  Shape shape = shapes().back();
  shape.cross = false, shape.len_k = shape.len_q, shape.width_kv = shape.width, shape.latent_norm = true;
  const LayerCall call(shape);
  const Cache cache(shape);
  run_step(call, cache, 0, 7);
  const LayerExplanation told = [&] {
    LayerForwardTensors step = call.forward;
    step.saved = {}, step.cache = cache.at(0);
    return explain(describe(step, call.options));
  }();
  EXPECT_EQ(told.saved_bytes, 0);
  const std::vector<float> rows = cache.latent.all();
  const std::int64_t columns = shape.latent_kv + shape.dim_shared;
  EXPECT_EQ(static_cast<std::int64_t>(rows.size()), shape.batch * kCapacity * columns);
  for (std::int64_t i = 0; i < kCapacity * columns; ++i)
    EXPECT_EQ(std::isnan(rows[static_cast<std::size_t>(i)]), i >= 7 * columns);
}

TEST(LayerCaches, AreRefusedBeforeAnythingIsWritten) {
  struct Refusal {
    const char* argument;
    std::function<void(LayerForwardTensors&)> spoil;
    const char* words;
  };
  const auto expect_all = [](const Shape& shape, const std::vector<Refusal>& refusals) {
    for (const Refusal& refusal : refusals) {
      const LayerCall call(shape);
      const Cache cache(shape);
      LayerForwardTensors step = call.forward;
      step.saved = {}, step.cache = cache.at(0);
      refusal.spoil(step);
      try {
        layer_forward(step, call.options);
        ADD_FAILURE() << "not refused: " << refusal.argument;
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::invalid_argument);
        EXPECT_EQ(error.details().argument, refusal.argument) << error.what();
        EXPECT_NE(std::string(error.what()).find(refusal.words), std::string::npos) << error.what();
      }
      for (const TestTensor* const one : {&cache.k, &cache.v, &cache.latent})
        for (const float value : one->all()) ASSERT_TRUE(std::isnan(value)) << refusal.argument;
    }
  };
  LayerCall other({.kind = LayerKind::mha});
  expect_all(
      {.kind = LayerKind::mha},
      {{"cache.length", [](auto& t) { t.cache.length = kCapacity - 6; }, "44 rows and 7 new ones in cache.k of 50"},
       {"cache.length", [](auto& t) { t.cache.length = -1; }, "-1"},
       {"cache.length", [](auto& t) { t.cache.length = INT64_MAX; }, "9223372036854775807"},
       {"cache.v", [](auto& t) { t.cache.v = {}; }, "missing"},
       {"cache.k", [](auto& t) { t.cache.k = {}; }, "missing"},
       {"cache.v", [](auto& t) { t.cache.v.sizes[3] = 11; }, "(2, 1, 50, 12)"},
       {"cache.k", [](auto& t) { t.cache.v.data = t.cache.k.data; }, "cache.v"},
       {"cache.k", [](auto& t) { t.cache.k.dtype = DType::bf16; }, "bf16"},
       {"cache.k",
        [](auto& t) {
          t.cache.k.device = {DeviceKind::cuda, 0};
        },
        "cuda:0"},
       {"cache.latent", [](auto& t) { t.cache.latent = t.cache.k; }, "cache.k and cache.v"},
       {"saved", [&](auto& t) { t.saved = other.saved.buffer(); }, "forward alone"},
       {"x_kv", [&](auto& t) { t.x_kv = other.forward.x; }, "no x_kv"}});
  expect_all({.kind = LayerKind::mla, .latent_q = 6, .latent_kv = 5},
             {{"cache.length", [](auto& t) { t.cache.length = 44; }, "cache.latent of 50"},
              {"cache.k", [](auto& t) { t.cache.k = t.cache.latent; }, "cache.latent"},
              {"cache.latent", [](auto& t) { t.cache.latent.sizes[3] = 4; }, "(2, 1, 50, 5)"}});
}

TEST(LayerCaches, ACausalMaskOfTheFirstRowsIsRefused) {
  const Shape shape{.kind = LayerKind::mha, .mask = Mask::causal};
  const LayerCall call(shape);
  const Cache cache(shape);
  LayerForwardTensors step = call.forward;
  step.saved = {}, step.cache = cache.at(3);
  try {
    layer_forward(step, call.options);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("causal_bottom_right"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace fovea::layers
