// Linear from C: values, optional tensors, what is explained, and the refusals that only C needs.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "fovea/fovea.h"

namespace {

fovea_tensor dense(float* data, std::int64_t rows, std::int64_t columns) {
  fovea_tensor tensor = {.struct_size = sizeof(fovea_tensor)};
  EXPECT_EQ(fovea_init_dense_tensor(&tensor, data, FOVEA_FP32, 1, 1, rows, columns), FOVEA_OK);
  return tensor;
}

// x = (1 2), (3 4); weight = (1 0), (0 1), (1 1); bias = 10, 20, 30.
struct Layer {
  float x[4] = {1, 2, 3, 4}, weight[6] = {1, 0, 0, 1, 1, 1}, bias[3] = {10, 20, 30}, y[6] = {};
  float dy[6] = {1, 0, 0, 0, 0, 1}, dx[4] = {}, dweight[6] = {}, dbias[3] = {};
  fovea_tensor of_x = dense(x, 2, 2), of_weight = dense(weight, 3, 2), of_bias = dense(bias, 1, 3),
               of_y = dense(y, 2, 3), of_dy = dense(dy, 2, 3), of_dx = dense(dx, 2, 2),
               of_dweight = dense(dweight, 3, 2), of_dbias = dense(dbias, 1, 3);
  fovea_linear_forward_tensors forward = {sizeof forward, &of_x, &of_weight, &of_bias, &of_y};
  fovea_linear_backward_tensors backward = {sizeof backward, &of_x,     &of_weight, &of_dy, &of_dx,
                                            &of_dweight,     &of_dbias, 0,          0};
};

TEST(CLinear, ForwardAddsTheBias) {
  Layer layer;
  ASSERT_EQ(fovea_linear_forward(&layer.forward, nullptr), FOVEA_OK) << fovea_last_error();
  const float wanted[] = {11, 22, 33, 13, 24, 37};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(layer.y[i], wanted[i]);
  layer.forward.bias = nullptr;
  ASSERT_EQ(fovea_linear_forward(&layer.forward, nullptr), FOVEA_OK);
  EXPECT_EQ(layer.y[5], 7);
}

TEST(CLinear, BackwardAccumulatesOnRequest) {
  Layer layer;
  ASSERT_EQ(fovea_linear_backward(&layer.backward, nullptr), FOVEA_OK) << fovea_last_error();
  layer.backward.accumulate = 1;
  ASSERT_EQ(fovea_linear_backward(&layer.backward, nullptr), FOVEA_OK) << fovea_last_error();
  const float dx[] = {1, 0, 1, 1}, dweight[] = {2, 4, 0, 0, 6, 8}, dbias[] = {2, 0, 2};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(layer.dx[i], dx[i]);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(layer.dweight[i], dweight[i]);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(layer.dbias[i], dbias[i]);
}

TEST(CLinear, ExplainShowsTheWorkspace) {
  Layer layer;
  fovea_linear_options options = {.struct_size = sizeof(fovea_linear_options), .implementation = "cpu.own"};
  int64_t bytes = -1;
  char text[1000];
  ASSERT_EQ(fovea_explain_linear_forward(&layer.forward, &options, &bytes, text, sizeof text, nullptr), FOVEA_OK);
  EXPECT_NE(std::string(text).find("chosen: cpu.own"), std::string::npos) << text;
  EXPECT_GT(bytes, 0);
  alignas(64) static char memory[64];
  options.workspace = {memory, 64};
  EXPECT_EQ(fovea_linear_forward(&layer.forward, &options), FOVEA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fovea_last_error()).find(std::to_string(bytes)), std::string::npos) << fovea_last_error();
}

TEST(CLinear, RefusesWhatOnlyCCanSay) {
  Layer layer;
  EXPECT_EQ(fovea_linear_forward(nullptr, nullptr), FOVEA_INVALID_ARGUMENT);
  layer.backward.accumulate_dx = 2;
  EXPECT_EQ(fovea_linear_backward(&layer.backward, nullptr), FOVEA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fovea_last_error()).find("accumulate_dx"), std::string::npos);
  layer.forward.y = nullptr;
  EXPECT_EQ(fovea_linear_forward(&layer.forward, nullptr), FOVEA_INVALID_ARGUMENT);
  layer.of_weight.sizes[3] = 5;
  layer.forward.y = &layer.of_y;
  EXPECT_EQ(fovea_linear_forward(&layer.forward, nullptr), FOVEA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fovea_last_error()).find("(1, 1, 3, 5)"), std::string::npos) << fovea_last_error();
  EXPECT_EQ(layer.y[0], 0);
}

// One thing wrong at a time: its status, the argument and the values.
void expect_refused(const std::function<void(Layer&)>& change, bool forward, const std::vector<std::string>& words) {
  Layer layer;
  change(layer);
  const fovea_status status =
      forward ? fovea_linear_forward(&layer.forward, nullptr) : fovea_linear_backward(&layer.backward, nullptr);
  EXPECT_EQ(status, FOVEA_INVALID_ARGUMENT);
  const std::string message = fovea_last_error();
  for (const std::string& word : words)
    EXPECT_NE(message.find(word), std::string::npos) << word << " is not in\n" << message;
  for (const float value : layer.y) EXPECT_EQ(value, 0);
  for (const float value : layer.dx) EXPECT_EQ(value, 0);
  for (const float value : layer.dweight) EXPECT_EQ(value, 0);
}

TEST(CLinear, RefusesSizes) {
  expect_refused([](Layer& l) { l.of_x.sizes[2] = -1; }, true, {"`x`", "negative size", "(1, 1, -1, 2)"});
  expect_refused([](Layer& l) { l.of_bias.sizes[3] = 4; }, true, {"`bias`", "(1, 1, 1, 4)", "(1, 1, 1, 3)"});
  expect_refused([](Layer& l) { l.of_y.sizes[2] = 1; }, true, {"`y`", "(1, 1, 1, 3)", "(1, 1, 2, 3)"});
  expect_refused([](Layer& l) { l.of_dx.sizes[3] = 1; }, false, {"`dx`", "(1, 1, 2, 1)", "(1, 1, 2, 2)"});
  expect_refused([](Layer& l) { l.of_dweight.sizes[2] = 2; }, false, {"`dweight`", "(1, 1, 2, 2)", "(1, 1, 3, 2)"});
}

TEST(CLinear, RefusesAReservedFieldThatIsSet) {
  Layer layer;
  fovea_linear_options options{.struct_size = sizeof options};
  options.reserved = 7;
  EXPECT_EQ(fovea_linear_forward(&layer.forward, &options), FOVEA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fovea_last_error()).find("`reserved`"), std::string::npos) << fovea_last_error();
  EXPECT_NE(std::string(fovea_last_error()).find("got:    7"), std::string::npos) << fovea_last_error();
  EXPECT_EQ(layer.y[0], 0);
}

TEST(CLinear, RefusesStrides) {
  expect_refused([](Layer& l) { l.of_x.strides[3] = 2; }, true, {"`x`", "the last dimension must be contiguous"});
  expect_refused([](Layer& l) { l.of_weight.strides[2] = 1; }, true, {"`weight`", "rows that overlap", "strides[2]"});
  expect_refused([](Layer& l) { l.of_y.strides[2] = 0; }, true, {"`y`", "stride 0 on an output"});
  expect_refused([](Layer& l) { l.of_dx.strides[2] = 1; }, false, {"`dx`", "strides"});
}

TEST(CLinear, RefusesTypes) {
  expect_refused([](Layer& l) { l.of_weight.dtype = FOVEA_BF16; }, true, {"`weight`", "bf16", "fp32"});
  expect_refused([](Layer& l) { l.of_y.dtype = FOVEA_FP16; }, true, {"`y`", "fp16", "fp32"});
  expect_refused([](Layer& l) { l.of_dbias.dtype = FOVEA_BF16; }, false, {"`dbias`", "bf16", "fp32"});
}

TEST(CLinear, RefusesOutputsThatShareMemory) {
  expect_refused([](Layer& l) { l.of_y.data = l.x; }, true, {"`y`", "shares memory with `x`"});
  expect_refused([](Layer& l) { l.of_dx.data = l.dy; }, false, {"`dx`", "shares memory with `dy`"});
  expect_refused([](Layer& l) { l.of_dbias.data = l.dx; }, false, {"shares memory with"});
}

}  // namespace
