// Layers from C: the same bits as from C++, what is explained, and the refusals that only C needs.
#include "fovea/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "fovea/fovea.h"

namespace {

// A tensor with its memory; values are small and irregular.
struct Owned {
  Owned(std::int64_t rows, std::int64_t columns, int seed) : values(static_cast<std::size_t>(rows * columns)) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = seed == 0 ? 0.0f : std::sin(static_cast<float>(seed * 100 + static_cast<int>(i)));
    EXPECT_EQ(fovea_init_dense_tensor(&tensor, values.data(), FOVEA_FP32, 1, 1, rows, columns), FOVEA_OK);
  }
  std::vector<float> values;
  fovea_tensor tensor = {.struct_size = sizeof(fovea_tensor)};
};

// Two query heads of dimension 4 over one key head, five rows of width 6.
struct AttentionLayer {
  Owned x{5, 6, 1}, q{8, 6, 2}, q_bias{1, 8, 3}, k{4, 6, 4}, v{4, 6, 5}, out{6, 8, 6}, y{5, 6, 0}, dy{5, 6, 7},
      dx{5, 6, 0}, dq{8, 6, 0}, dq_bias{1, 8, 0}, dv{4, 6, 0};
  fovea_layer_projections parameters = {.struct_size = sizeof parameters},
                          gradients = {.struct_size = sizeof gradients};
  alignas(64) unsigned char saved[4096] = {};
  fovea_layer_forward_tensors forward = {.struct_size = sizeof forward,
                                         .x = &x.tensor,
                                         .x_kv = nullptr,
                                         .parameters = &parameters,
                                         .y = &y.tensor,
                                         .saved = {saved, sizeof saved}};
  fovea_layer_backward_tensors backward = {.struct_size = sizeof backward,
                                           .x = &x.tensor,
                                           .x_kv = nullptr,
                                           .parameters = &parameters,
                                           .dy = &dy.tensor,
                                           .dx = &dx.tensor,
                                           .dx_kv = nullptr,
                                           .gradients = &gradients,
                                           .saved = {saved, sizeof saved},
                                           .accumulate = 0,
                                           .reserved = 0};
  fovea_layer_options options = {
      .struct_size = sizeof options, .kind = FOVEA_MQA, .mask = FOVEA_MASK_CAUSAL, .heads_q = 2};

  AttentionLayer() {
    parameters.q = {&q.tensor, &q_bias.tensor};
    parameters.k.weight = &k.tensor;
    parameters.v.weight = &v.tensor;
    parameters.out.weight = &out.tensor;
    gradients.q = {&dq.tensor, &dq_bias.tensor};
    gradients.v.weight = &dv.tensor;
  }
};

fovea::MutableTensorView view(Owned& one) {
  return fovea::contiguous(one.values.data(), {1, 1, one.tensor.sizes[2], one.tensor.sizes[3]});
}

TEST(CLayers, GiveTheBitsOfTheCppCalls) {
  AttentionLayer c, cpp;
  ASSERT_EQ(fovea_layer_forward(&c.forward, &c.options), FOVEA_OK) << fovea_last_error();
  ASSERT_EQ(fovea_layer_backward(&c.backward, &c.options), FOVEA_OK) << fovea_last_error();
  fovea::LayerParameters parameters;
  parameters.q = {view(cpp.q), view(cpp.q_bias)};
  parameters.k.weight = view(cpp.k), parameters.v.weight = view(cpp.v), parameters.out.weight = view(cpp.out);
  fovea::LayerGradients gradients;
  gradients.q = {view(cpp.dq), view(cpp.dq_bias)};
  gradients.v.weight = view(cpp.dv);
  const fovea::LayerOptions options{.kind = fovea::LayerKind::mqa, .heads_q = 2, .mask = fovea::Mask::causal};
  const fovea::Buffer saved{cpp.saved, sizeof cpp.saved};
  layer_forward({.x = view(cpp.x), .parameters = parameters, .y = view(cpp.y), .saved = saved}, options);
  layer_backward({.x = view(cpp.x),
                  .parameters = parameters,
                  .dy = view(cpp.dy),
                  .dx = view(cpp.dx),
                  .gradients = gradients,
                  .saved = saved},
                 options);
  EXPECT_EQ(c.y.values, cpp.y.values);
  EXPECT_EQ(c.dx.values, cpp.dx.values);
  EXPECT_EQ(c.dq.values, cpp.dq.values);
  EXPECT_EQ(c.dq_bias.values, cpp.dq_bias.values);
  EXPECT_EQ(c.dv.values, cpp.dv.values);
  EXPECT_NE(c.dv.values[3], 0);
}

TEST(CLayers, TurnAndNormaliseAsTheCppCallsDo) {
  AttentionLayer c, cpp;
  Owned norm{1, 4, 9}, dnorm{1, 4, 0}, cpp_norm{1, 4, 9}, cpp_dnorm{1, 4, 0};
  fovea_layer_norms norms = {.struct_size = sizeof norms, .q = &norm.tensor},
                    norm_gradients = {.struct_size = sizeof norm_gradients, .q = &dnorm.tensor};
  c.forward.norms = c.backward.norms = &norms;
  c.backward.norm_gradients = &norm_gradients;
  c.options.rotary = FOVEA_ROTARY_HALVES;
  c.options.rotary_theta = 100, c.options.rotary_position_k = 2, c.options.epsilon = 0.5;
  ASSERT_EQ(fovea_layer_forward(&c.forward, &c.options), FOVEA_OK) << fovea_last_error();
  ASSERT_EQ(fovea_layer_backward(&c.backward, &c.options), FOVEA_OK) << fovea_last_error();
  fovea::LayerParameters parameters;
  parameters.q = {view(cpp.q), view(cpp.q_bias)};
  parameters.k.weight = view(cpp.k), parameters.v.weight = view(cpp.v), parameters.out.weight = view(cpp.out);
  const fovea::LayerOptions options{
      .kind = fovea::LayerKind::mqa,
      .heads_q = 2,
      .mask = fovea::Mask::causal,
      .rotary = fovea::Rotary{.theta = 100, .pairs = fovea::RotaryPairs::halves, .position_k = 2},
      .epsilon = 0.5};
  const fovea::Buffer saved{cpp.saved, sizeof cpp.saved};
  layer_forward(
      {.x = view(cpp.x), .parameters = parameters, .y = view(cpp.y), .saved = saved, .norms = {.q = view(cpp_norm)}},
      options);
  layer_backward({.x = view(cpp.x),
                  .parameters = parameters,
                  .dy = view(cpp.dy),
                  .dx = view(cpp.dx),
                  .saved = saved,
                  .norms = {.q = view(cpp_norm)},
                  .norm_gradients = {.q = view(cpp_dnorm)}},
                 options);
  EXPECT_EQ(c.y.values, cpp.y.values);
  EXPECT_EQ(c.dx.values, cpp.dx.values);
  EXPECT_EQ(dnorm.values, cpp_dnorm.values);
  EXPECT_NE(dnorm.values[0], 0);
}

TEST(CLayers, StepWithACache) {
  AttentionLayer whole, stepped;
  Owned k{8, 4, 0}, v{8, 4, 0};
  fovea_layer_cache cache = {.struct_size = sizeof cache, .k = &k.tensor, .v = &v.tensor};
  whole.forward.saved = stepped.forward.saved = {};
  ASSERT_EQ(fovea_layer_forward(&whole.forward, &whole.options), FOVEA_OK) << fovea_last_error();
  stepped.forward.cache = &cache;
  stepped.options.mask = FOVEA_MASK_CAUSAL_BOTTOM_RIGHT;
  for (fovea_tensor* const rows : {&stepped.x.tensor, &stepped.y.tensor}) rows->sizes[2] = 1, rows->buffer_bytes = 0;
  for (; cache.length < 5; ++cache.length) {
    ASSERT_EQ(fovea_layer_forward(&stepped.forward, &stepped.options), FOVEA_OK) << fovea_last_error();
    for (fovea_tensor* const rows : {&stepped.x.tensor, &stepped.y.tensor})
      rows->data = static_cast<float*>(rows->data) + 6;
  }
  for (std::size_t i = 0; i < whole.y.values.size(); ++i) EXPECT_NEAR(stepped.y.values[i], whole.y.values[i], 1e-6);
  EXPECT_NE(k.values[19], 0);
  EXPECT_EQ(k.values[20], 0);
  cache.length = 8;
  EXPECT_EQ(fovea_layer_forward(&stepped.forward, &stepped.options), FOVEA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fovea_last_error()).find("`cache.length`"), std::string::npos) << fovea_last_error();
}

TEST(CLayers, ExplainTellsMemoryAndParts) {
  AttentionLayer layer;
  layer.forward.saved = {};
  int64_t workspace = -1, saved = -1;
  char text[1000];
  ASSERT_EQ(fovea_explain_layer_forward(&layer.forward, &layer.options, &workspace, &saved, text, sizeof text, nullptr),
            FOVEA_OK)
      << fovea_last_error();
  EXPECT_GT(workspace, 0);
  EXPECT_GT(saved, 0);
  for (const char* words : {"q: cpu.", "attention: cpu.", "out: cpu.", "saved: 0 bytes"})
    EXPECT_NE(std::string(text).find(words), std::string::npos) << words << " is not in\n" << text;
  size_t needed = 0;
  int64_t again = -1;
  ASSERT_EQ(fovea_explain_layer_backward(&layer.backward, &layer.options, nullptr, &again, nullptr, 0, &needed),
            FOVEA_OK);
  EXPECT_EQ(again, saved);
  EXPECT_GT(needed, 100u);
  layer.forward.saved = {layer.saved, saved - 1};
  EXPECT_EQ(fovea_layer_forward(&layer.forward, &layer.options), FOVEA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fovea_last_error()).find(std::to_string(saved)), std::string::npos) << fovea_last_error();
}

template <class Spoil>
void expect_refused(Spoil spoil, const std::string& word) {
  AttentionLayer layer;
  ASSERT_EQ(fovea_layer_forward(&layer.forward, &layer.options), FOVEA_OK);
  spoil(layer);
  EXPECT_EQ(fovea_layer_backward(&layer.backward, &layer.options), FOVEA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fovea_last_error()).find(word), std::string::npos) << word << "\n" << fovea_last_error();
  for (const Owned* one : {&layer.dx, &layer.dq, &layer.dv})
    for (const float value : one->values) EXPECT_EQ(value, 0);
}

TEST(CLayers, RefuseWhatOnlyCCanSay) {
  expect_refused([](AttentionLayer& l) { l.options.kind = 5; }, "`kind`");
  expect_refused([](AttentionLayer& l) { l.options.mask_left = 3; }, "`mask_left`");
  expect_refused([](AttentionLayer& l) { l.options.reserved = 1; }, "`reserved`");
  expect_refused([](AttentionLayer& l) { l.options.struct_size = 8; }, "`options`");
  expect_refused([](AttentionLayer& l) { l.options.rotary = 3; }, "`rotary`");
  expect_refused([](AttentionLayer& l) { l.options.reserved_2 = 1; }, "`reserved_2`");
  static fovea_layer_norms norms = {};
  expect_refused([](AttentionLayer& l) { l.backward.norms = &norms; }, "`norms`");
  expect_refused([](AttentionLayer& l) { l.backward.accumulate = 2; }, "`accumulate`");
  expect_refused([](AttentionLayer& l) { l.backward.parameters = nullptr; }, "`parameters`");
  expect_refused([](AttentionLayer& l) { l.parameters.struct_size = 0; }, "`parameters`");
  expect_refused([](AttentionLayer& l) { l.parameters.k.weight = nullptr; }, "`k.weight`");
  expect_refused([](AttentionLayer& l) { l.dq.tensor.rank = 2; }, "`gradients.q.weight`");
  expect_refused([](AttentionLayer& l) { l.backward.dy = nullptr; }, "`dy`");
  AttentionLayer layer;
  EXPECT_EQ(fovea_layer_forward(&layer.forward, nullptr), FOVEA_INVALID_ARGUMENT);
  EXPECT_EQ(fovea_layer_forward(nullptr, &layer.options), FOVEA_INVALID_ARGUMENT);
}

}  // namespace
