// Every refusal of Linear comes before anything is written, with the values and what would be accepted.
#include <gtest/gtest.h>

#include <cstring>

#include "linear_tensors.h"

namespace fovea::linear {
namespace {

struct Call {
  TestTensor x{{2, 2, 5, 4}, DType::bf16, Order::dense, 1}, weight{{1, 1, 6, 8}, DType::bf16, Order::dense, 2},
      bias{{1, 1, 1, 6}, DType::bf16, Order::dense, 3}, y{{2, 1, 5, 6}, DType::bf16, Order::dense, 0},
      dy{{2, 1, 5, 6}, DType::bf16, Order::dense, 4}, dx{{2, 2, 5, 4}, DType::bf16, Order::dense, 0},
      dweight{{1, 1, 6, 8}, DType::fp32, Order::dense, 0}, dbias{{1, 1, 1, 6}, DType::fp32, Order::dense, 0};
  LinearForwardTensors forward{x.view, weight.view, bias.view, y.view};
  LinearBackwardTensors backward{x.view, weight.view, dy.view, dx.view, dweight.view, dbias.view};
  LinearOptions options;
};

void expect_refused(const std::function<void()>& call, const TestTensor& output, const std::string& argument,
                    const std::vector<std::string>& words, Status status = Status::invalid_argument) {
  const std::vector<float> before = output.all();
  try {
    call();
    ADD_FAILURE() << "not refused: " << argument;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status);
    EXPECT_EQ(error.details().argument, argument) << error.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << " is not in\n" << error.what();
  }
  const std::vector<float> after = output.all();
  EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0) << argument;
}

void refuse_forward(const std::function<void(Call&)>& change, const std::string& argument,
                    const std::vector<std::string>& words) {
  Call call;
  change(call);
  expect_refused([&] { linear_forward(call.forward, call.options); }, call.y, argument, words);
}

void refuse_backward(const std::function<void(Call&)>& change, const std::string& argument,
                     const std::vector<std::string>& words) {
  Call call;
  change(call);
  expect_refused([&] { linear_backward(call.backward, call.options); }, call.dx, argument, words);
}

TEST(LinearRefusals, SizesThatDoNotAgree) {
  refuse_forward([](Call& c) { c.forward.weight.sizes[3] = 7; }, "weight", {"(1, 1, 6, 7)", "(1, 1, 6, 8)"});
  refuse_forward([](Call& c) { c.forward.weight.sizes[0] = 2; }, "weight", {"(2, 1, 6, 8)", "(1, 1, 6, 8)"});
  refuse_forward([](Call& c) { c.forward.bias.sizes[3] = 5; }, "bias", {"(1, 1, 1, 5)", "(1, 1, 1, 6)"});
  refuse_forward([](Call& c) { c.forward.y.sizes[2] = 4; }, "y", {"(2, 1, 4, 6)", "(2, 1, 5, 6)"});
  refuse_forward([](Call& c) { c.forward.x.sizes[2] = -1; }, "x", {"negative size", "(2, 2, -1, 4)"});
  refuse_backward([](Call& c) { c.backward.dx.sizes[3] = 3; }, "dx", {"(2, 2, 5, 3)", "(2, 2, 5, 4)"});
  refuse_backward([](Call& c) { c.backward.dweight.sizes[2] = 5; }, "dweight", {"(1, 1, 5, 8)", "(1, 1, 6, 8)"});
  refuse_backward([](Call& c) { c.backward.dbias.sizes[3] = 8; }, "dbias", {"(1, 1, 1, 8)", "(1, 1, 1, 6)"});
}

TEST(LinearRefusals, MissingTensors) {
  refuse_forward([](Call& c) { c.forward.weight = {}; }, "weight", {"missing"});
  refuse_forward([](Call& c) { c.forward.x.data = nullptr; }, "x", {"null"});
  refuse_backward([](Call& c) { c.backward.x = {}; }, "x", {"missing"});
  refuse_backward([](Call& c) { c.backward.dx = c.backward.dweight = c.backward.dbias = {}; }, "dx",
                  {"no gradient is asked for"});
}

TEST(LinearRefusals, Strides) {
  refuse_forward([](Call& c) { c.forward.x.strides[3] = 2; }, "x", {"the last dimension must be contiguous"});
  refuse_forward([](Call& c) { c.forward.weight.strides[2] = 5; }, "weight", {"rows that overlap", "strides[2] of 8"});
  refuse_forward([](Call& c) { c.forward.y.strides[2] = 0; }, "y", {"stride 0 on an output"});
  refuse_forward([](Call& c) { c.forward.y.buffer_bytes = 16; }, "y", {"reach past the buffer", "16 bytes"});
}

TEST(LinearRefusals, Types) {
  refuse_forward([](Call& c) { c.forward.weight.dtype = DType::fp16; }, "weight", {"fp16", "bf16"});
  refuse_forward([](Call& c) { c.forward.y.dtype = DType::fp16; }, "y", {"fp16", "bf16 or fp32"});
  refuse_forward([](Call& c) { c.forward.x.dtype = static_cast<DType>(9); }, "x", {"unknown element type", "9"});
  refuse_backward([](Call& c) { c.backward.dbias.dtype = DType::bf16; }, "dbias", {"bf16", "fp32"});
  refuse_backward([](Call& c) { c.backward.accumulate_dx = true; }, "accumulate_dx", {"bf16", "fp32"});
}

TEST(LinearRefusals, MemoryThatIsShared) {
  refuse_forward([](Call& c) { c.forward.y.data = const_cast<void*>(c.forward.x.data); }, "y",
                 {"shares memory with `x`"});
  refuse_backward([](Call& c) { c.backward.dx.data = const_cast<void*>(c.backward.dy.data); }, "dx",
                  {"shares memory with `dy`"});
  refuse_backward([](Call& c) { c.backward.dbias.data = c.backward.dweight.data; }, "dweight",
                  {"shares memory with `dbias`"});
}

TEST(LinearRefusals, Options) {
  refuse_forward([](Call& c) { c.options.threads = -1; }, "threads", {"-1"});
  refuse_forward([](Call& c) { c.options.threads = 2'000'000'000; }, "threads", {"2000000000", "1 to 4096"});
  refuse_forward([](Call& c) { c.options.implementation = "cpu.onwed"; }, "implementation", {"cpu.onwed", "cpu.own"});
  refuse_forward([](Call& c) { c.forward.x.device = {DeviceKind::cuda, 0}; }, "weight", {"cpu:0", "cuda:0"});
  alignas(64) static char memory[64];
  refuse_forward([](Call& c) { c.options.workspace = {memory, 64}; }, "workspace", {"64 bytes", "at least"});
  refuse_forward([](Call& c) { c.options.workspace = {memory + 1, 63}; }, "workspace", {"not aligned"});
}

TEST(LinearRefusals, ProblemsThatCannotBeCounted) {
  const auto refuse = [](const LinearProblem& problem, const std::string& argument) {
    try {
      workspace_bytes(problem);
      ADD_FAILURE() << argument;
    } catch (const Error& error) {
      EXPECT_EQ(error.details().argument, argument);
    }
  };
  refuse({.len = -1}, "len");
  refuse({.len = std::int64_t{1} << 40, .dim_in = std::int64_t{1} << 40}, "problem");
  refuse({.result_dtype = DType::bf16}, "result_dtype");
  refuse({.device = {DeviceKind::cpu, 3}}, "device");
}

}  // namespace
}  // namespace fovea::linear
