// Linear on the CPU against the reference: every type, memory order, thread count and implementation.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "core/memory.h"
#include "linear_tensors.h"

namespace fovea::linear {
namespace {

struct Shape {
  std::int64_t batch, len, heads_in, dim_in, heads_out, dim_out;
};
constexpr Shape kShapes[] = {{1, 1, 1, 1, 1, 1},   {2, 5, 3, 8, 4, 6},     {1, 270, 1, 40, 1, 520},
                             {3, 1, 2, 33, 1, 17}, {2, 140, 4, 16, 2, 24}, {1, 37, 1, 300, 3, 64},
                             {4, 9, 1, 64, 5, 1}};

struct Tensors {
  TestTensor x, weight, bias, y, dy, dx, dweight, dbias;

  Tensors(const Shape& s, DType dtype, DType result, Order order)
      : x({s.batch, s.heads_in, s.len, s.dim_in}, dtype, order, 1),
        weight({1, 1, s.heads_out * s.dim_out, s.heads_in * s.dim_in}, dtype,
               order == Order::gaps ? Order::gaps : Order::dense, 2),
        bias({1, 1, 1, s.heads_out * s.dim_out}, dtype, Order::dense, 3),
        y({s.batch, s.heads_out, s.len, s.dim_out}, result, order, 0),
        dy({s.batch, s.heads_out, s.len, s.dim_out}, dtype, order, 4),
        dx({s.batch, s.heads_in, s.len, s.dim_in}, result, order, 0),
        dweight({1, 1, s.heads_out * s.dim_out, s.heads_in * s.dim_in}, result, Order::dense, 0),
        dbias({1, 1, 1, s.heads_out * s.dim_out}, result, Order::dense, 0) {}

  LinearForwardTensors forward(bool with_bias = true) const {
    return {x.view, weight.view, with_bias ? TensorView(bias.view) : TensorView{}, y.view};
  }
  LinearBackwardTensors backward() const { return {x.view, weight.view, dy.view, dx.view, dweight.view, dbias.view}; }
};

std::vector<std::string> names(DType dtype) {
  std::vector<std::string> taken;
  for (const ImplementationInfo& one : linear_implementations()) {
    const LinearProblem problem{.dtype = dtype, .result_dtype = dtype, .parameter_dtype = dtype, .bias = true};
    if (one.device == DeviceKind::cpu && !explain(problem, one.name).chosen.empty()) taken.push_back(one.name);
  }
  return taken;
}

void expect_right(const Shape& shape, DType dtype, DType result, Order order) {
  const Tensors t(shape, dtype, result, order);
  const verification::Expectation bare = verification::expect_linear_forward(t.forward(false), 1),
                                  biased = verification::expect_linear_forward(t.forward(true), 1),
                                  gradients = verification::expect_linear_backward(t.backward(), {}, 1);
  for (const std::string& name : names(dtype)) {
    SCOPED_TRACE(name + " type " + std::to_string(static_cast<int>(dtype)) + " order " +
                 std::to_string(static_cast<int>(order)) + " rows " + std::to_string(shape.batch * shape.len) +
                 " out " + std::to_string(shape.heads_out * shape.dim_out));
    for (const TestTensor* one : {&t.y, &t.dx, &t.dweight, &t.dbias})
      one->for_each([&](std::int64_t index) { const_cast<TestTensor*>(one)->set(index, NAN); });
    linear_forward(t.forward(false), {.implementation = name, .threads = 2});
    EXPECT_EQ(fault_of(bare, {{"y", t.y.view}}), "");
    linear_forward(t.forward(true), {.implementation = name, .threads = 2});
    EXPECT_EQ(fault_of(biased, {{"y", t.y.view}}), "");
    linear_backward(t.backward(), {.implementation = name, .threads = 2});
    EXPECT_EQ(fault_of(gradients, gradients_of(t.backward())), "");
    for (const TestTensor* one : {&t.y, &t.dx, &t.dweight, &t.dbias}) ASSERT_EQ(one->gaps_written(), 0);
  }
}

TEST(Linear, IsRightForEveryTypeShapeAndMemoryOrder) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const Order order : {Order::dense, Order::by_heads, Order::gaps}) {
      for (const Shape& shape : kShapes) expect_right(shape, dtype, dtype, order);
    }
    expect_right(kShapes[1], dtype, DType::fp32, Order::gaps);
    expect_right(kShapes[4], dtype, DType::fp32, Order::by_heads);
  }
}

TEST(Linear, AnyNumberOfThreadsGivesTheSameBits) {
  const Shape shape{2, 300, 2, 40, 3, 200};
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const std::string& name : names(dtype)) {
      std::vector<std::vector<float>> first;
      for (const int threads : {1, 2, 3, 8}) {
        const Tensors t(shape, dtype, dtype, Order::by_heads);
        linear_forward(t.forward(), {.implementation = name, .threads = threads});
        linear_backward(t.backward(), {.implementation = name, .threads = threads});
        const std::vector<std::vector<float>> now{t.y.all(), t.dx.all(), t.dweight.all(), t.dbias.all()};
        if (first.empty()) first = now;
        for (std::size_t i = 0; i < now.size(); ++i)
          EXPECT_EQ(std::memcmp(now[i].data(), first[i].data(), now[i].size() * sizeof(float)), 0)
              << name << " tensor " << i << ", " << threads << " threads";
      }
    }
  }
}

TEST(Linear, AnExternalThreadPoolGivesTheSameBits) {
  const ExternalThreadPool thread_pool{
      3, nullptr, [](void*, std::int64_t count, void (*task)(void*, std::int64_t, int), void* argument) {
        for (std::int64_t i = count; i-- > 0;) task(argument, i, 0);
      }};
  const Tensors own({2, 300, 2, 40, 3, 200}, DType::fp32, DType::fp32, Order::dense),
      pooled({2, 300, 2, 40, 3, 200}, DType::fp32, DType::fp32, Order::dense);
  linear_forward(own.forward());
  linear_forward(pooled.forward(), {.thread_pool = &thread_pool});
  EXPECT_EQ(own.y.all(), pooled.y.all());
}

TEST(Linear, AThreadPoolThatRunsNoTaskIsNoErrorOfAttention) {
  const ExternalThreadPool thread_pool{3, nullptr,
                                       [](void*, std::int64_t, void (*)(void*, std::int64_t, int), void*) {}};
  const Tensors tensors({2, 300, 2, 40, 3, 200}, DType::fp32, DType::fp32, Order::dense);
  try {
    linear_forward(tensors.forward(), {.implementation = "cpu.own", .thread_pool = &thread_pool});
    ADD_FAILURE() << "nothing was said";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::error);
    EXPECT_EQ(std::string(error.what()).rfind("fovea: error thread_pool: the thread pool did not run", 0), 0U)
        << error.what();
  }
}

TEST(Linear, AccumulatingAddsToWhatWasThere) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const std::string& name : names(dtype)) {
      const Tensors once({2, 30, 2, 16, 2, 24}, dtype, DType::fp32, Order::by_heads);
      Tensors twice({2, 30, 2, 16, 2, 24}, dtype, DType::fp32, Order::by_heads);
      linear_backward(once.backward(), {.implementation = name});
      LinearBackwardTensors tensors = twice.backward();
      tensors.accumulate = tensors.accumulate_dx = true;
      for (TestTensor* one : {&twice.dx, &twice.dweight, &twice.dbias})
        one->for_each([&](std::int64_t i) { one->set(i, 1.0f); });
      linear_backward(tensors, {.implementation = name});
      for (const auto& [a, b] :
           {std::pair{&once.dx, &twice.dx}, {&once.dweight, &twice.dweight}, {&once.dbias, &twice.dbias}}) {
        const std::vector<float> plain = a->all(), added = b->all();
        for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_NEAR(plain[i] + 1.0f, added[i], 1e-4f) << name;
      }
    }
  }
}

TEST(Linear, EachGradientAloneHasTheSameBits) {
  const Shape shape{2, 60, 2, 16, 2, 24};
  const Tensors all(shape, DType::bf16, DType::bf16, Order::dense);
  linear_backward(all.backward());
  for (int subset = 1; subset < 7; ++subset) {
    const Tensors some(shape, DType::bf16, DType::bf16, Order::dense);
    LinearBackwardTensors t = some.backward();
    if ((subset & 1) == 0) t.dx = {}, t.weight = {};
    if ((subset & 2) == 0) t.dweight = {}, t.x = {};
    if ((subset & 4) == 0) t.dbias = {};
    linear_backward(t);
    EXPECT_EQ(some.dx.all() == all.dx.all(), (subset & 1) != 0) << subset;
    EXPECT_EQ(some.dweight.all() == all.dweight.all(), (subset & 2) != 0) << subset;
    EXPECT_EQ(some.dbias.all() == all.dbias.all(), (subset & 4) != 0) << subset;
  }
}

TEST(Linear, BroadcastGradientsAreTakenThroughACopy) {
  const Tensors t({2, 30, 2, 16, 2, 24}, DType::fp32, DType::fp32, Order::dense);
  LinearBackwardTensors tensors = t.backward();
  TestTensor row({1, 2, 1, 24}, DType::fp32, Order::dense, 5);
  tensors.dy = row.view;
  tensors.dy.sizes = {2, 2, 30, 24};
  tensors.dy.strides[0] = tensors.dy.strides[2] = 0;
  EXPECT_TRUE(describe(tensors).copies_dy);
  linear_backward(tensors);
  EXPECT_EQ(fault_of(verification::expect_linear_backward(tensors, {}, 1), gradients_of(tensors)), "");
}

TEST(Linear, SizesOfZeroWriteWhatAnEmptySumIs) {
  for (const Shape& s : {Shape{0, 5, 1, 4, 1, 3}, {2, 0, 1, 4, 1, 3}, {2, 5, 1, 0, 1, 3}, {2, 5, 1, 4, 0, 3}}) {
    const Tensors t(s, DType::fp32, DType::fp32, Order::dense);
    linear_forward(t.forward());
    if (s.dim_in == 0) {
      const std::vector<float> y = t.y.all(), bias = t.bias.all();
      for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i % bias.size()]);
    }
    linear_backward(t.backward());
    const bool no_rows = s.batch * s.len == 0;
    for (const float value : t.dx.all()) EXPECT_EQ(value, 0.0f);
    if (no_rows) {
      for (const TestTensor* one : {&t.dweight, &t.dbias})
        for (const float value : one->all()) EXPECT_EQ(value, 0.0f);
    }
  }
}

TEST(Linear, ARowThatIsNotFiniteReachesNoOther) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const std::string& name : names(dtype)) {
      Tensors clean({1, 70, 1, 96, 1, 50}, dtype, dtype, Order::gaps),
          hurt({1, 70, 1, 96, 1, 50}, dtype, dtype, Order::gaps);
      for (std::int64_t i = 0; i < 96; ++i)
        hurt.x.set(33 * 99 + i, i % 2 == 0 ? NAN : std::numeric_limits<float>::infinity());
      linear_forward(clean.forward(), {.implementation = name});
      linear_forward(hurt.forward(), {.implementation = name});
      const std::vector<float> a = clean.y.all(), b = hurt.y.all();
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (i / 50 == 33)
          ASSERT_TRUE(std::isnan(b[i])) << name;
        else
          ASSERT_EQ(a[i], b[i]) << name << " row " << i / 50;
      }
    }
  }
}

TEST(Linear, TheCallersWorkspaceIsEnough) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const std::string& name : names(dtype)) {
      const Tensors t({2, 300, 2, 40, 3, 200}, dtype, dtype, Order::by_heads),
          expected({2, 300, 2, 40, 3, 200}, dtype, dtype, Order::by_heads);
      linear_backward(expected.backward(), {.implementation = name});
      const std::int64_t bytes = workspace_bytes(describe(t.backward()), name);
      std::vector<unsigned char> memory(static_cast<std::size_t>(bytes) + 128, 0xa5);
      auto* const aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
      linear_backward(t.backward(), {.implementation = name, .threads = 8, .workspace = {aligned, bytes}});
      for (auto* p = aligned + bytes; p < memory.data() + memory.size(); ++p) ASSERT_EQ(*p, 0xa5) << name;
      EXPECT_EQ(t.dx.all(), expected.dx.all()) << name;
      EXPECT_EQ(t.dweight.all(), expected.dweight.all()) << name;
    }
  }
}

TEST(Linear, ARaisedFlagCancels) {
  const Tensors t({1, 600, 1, 64, 1, 600}, DType::fp32, DType::fp32, Order::dense);
  const std::atomic<bool> raised = true;
  try {
    linear_forward(t.forward(), {.cancel = &raised});
    FAIL() << "not cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::cancelled);
  }
}

TEST(Linear, ExplainNamesWhatRunsAndWhy) {
  const Explanation told = explain(LinearProblem{.len = 1024, .dim_in = 1024, .dim_out = 1024}, "cpu.own");
  EXPECT_EQ(told.chosen, "cpu.own");
  EXPECT_EQ(told.tiles.find("1024 x 1024 x 1024: "), 0u) << told.tiles;
  EXPECT_NE(told.tiles.find(", K in blocks of "), std::string::npos) << told.tiles;
  EXPECT_EQ(told.flops, 2.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(told.bytes, 3.0 * 4 * 1024 * 1024);
}

}  // namespace
}  // namespace fovea::linear
