// Layers on the CPU against their formulas in double precision, and against one another.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "expected_layer.h"
#include "layers/parts.h"

namespace fovea::layers {
namespace {

void expect_right(const Shape& shape) {
  SCOPED_TRACE(std::string(to_string(shape.kind)) + " type " + std::to_string(static_cast<int>(shape.dtype)) +
               (shape.cross ? " cross" : "") + " order " + std::to_string(static_cast<int>(shape.order)));
  const LayerCall call(shape);
  call.run();
  EXPECT_EQ(fault_of(call), "");
  EXPECT_EQ(call.gaps_written(), 0);
}

TEST(Layers, AreRightForEveryKindTypeAndMemoryOrder) {
  for (Shape shape : shapes()) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      for (const Order order : {Order::dense, Order::gaps}) {
        shape.dtype = shape.result = dtype, shape.order = order;
        expect_right(shape);
      }
      shape.result = DType::fp32;
      expect_right(shape);
    }
  }
}

// Central differences of expected_y along a random direction, for every input.
TEST(Layers, ExpectedGradientsAreThoseOfTheFormula) {
  for (const Shape& shape : shapes()) {
    const LayerCall call(shape);
    const LayerProblem problem = problem_of(shape);
    const Matrices inputs = inputs_of(call), gradients = expected_gradients(problem, inputs);
    const auto loss = [&](const Matrices& at) {
      const Matrix y = expected_y(problem, at), &dy = inputs.at("dy");
      double sum = 0;
      for (std::size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * dy.values[i];
      return sum;
    };
    for (const auto& [name, input] : inputs) {
      if (name == "dy") continue;
      constexpr double kStep = 2e-5;
      Matrices less = inputs, more = inputs;
      double slope = 0;
      std::mt19937 random(7);
      std::normal_distribution<double> normal;
      for (std::size_t i = 0; i < input.values.size(); ++i) {
        const double direction = normal(random);
        less[name].values[i] -= kStep * direction, more[name].values[i] += kStep * direction;
        slope += direction * gradients.at("d" + name).values[i];
      }
      EXPECT_NEAR((loss(more) - loss(less)) / (2 * kStep), slope, 1e-5 * std::max(1.0, std::abs(slope)))
          << to_string(shape.kind) << " " << name;
    }
  }
}

// k and v of each key head, repeated for the query heads that it serves.
void repeat_rows(const LayerCall& from, const LayerCall& to, const std::string& name, std::int64_t dim) {
  const TestTensor &few = from.tensor(name), &many = to.tensor(name);
  const std::int64_t columns = few.view.sizes[3], group = many.view.sizes[2] / few.view.sizes[2];
  for (std::int64_t row = 0; row < many.view.sizes[2]; ++row) {
    const std::int64_t source = row / dim / group * dim + row % dim;
    for (std::int64_t c = 0; c < columns; ++c)
      const_cast<TestTensor&>(many).set(row * columns + c, few.at(source * columns + c));
  }
}

TEST(Layers, GroupedQueriesEqualHeadsWhoseKeysAreRepeated) {
  const Shape shape{.kind = LayerKind::gqa, .len_q = 20, .len_k = 20, .heads_kv = 2, .bias = false};
  Shape expanded_shape = shape;
  expanded_shape.kind = LayerKind::mha, expanded_shape.heads_kv = 4;
  const LayerCall grouped(shape), expanded(expanded_shape);
  for (const char* name : {"k", "v"}) repeat_rows(grouped, expanded, name, shape.dim_qk);
  grouped.run(), expanded.run();
  const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5f);
  };
  for (const char* name : {"y", "dx", "dq", "dout"}) near(grouped.values(name), expanded.values(name));
  for (const char* name : {"dk", "dv"}) {
    const std::vector<float> few = grouped.values(name), many = expanded.values(name);
    const std::int64_t columns = shape.width, half = shape.dim_qk * columns;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(few.size()); ++i) {
      const std::int64_t first = i / half * 2 * half + i % half;
      EXPECT_NEAR(few[i], many[first] + many[first + half], 1e-4f) << name;
    }
  }
}

TEST(Layers, OneKeyHeadIsAGroupOfAllQueries) {
  const Shape one{.kind = LayerKind::mqa, .len_q = 20, .len_k = 20, .heads_kv = 1};
  Shape group = one;
  group.kind = LayerKind::gqa;
  const LayerCall a(one), b(group);
  a.run(), b.run();
  EXPECT_EQ(a.results(), b.results());
}

// fp32 gradients of x are summed product by product where the weights are separate, so only their last bits differ.
TEST(Layers, OneFusedProjectionEqualsSeparateOnesBitForBit) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const Shape fused_shape{.len_q = 70,
                            .len_k = 70,
                            .width = 64,
                            .width_kv = 64,
                            .dim_qk = 16,
                            .dim_v = 16,
                            .dtype = dtype,
                            .result = dtype};
    Shape separate_shape = fused_shape;
    separate_shape.kind = LayerKind::mha;
    LayerCall fused(fused_shape), separate(separate_shape);
    const std::int64_t rows = 64, columns = 64;
    const auto copy = [&](const std::string& name, std::int64_t part, std::int64_t count) {
      for (const std::string suffix : {"", ".bias"}) {
        const std::int64_t n = suffix.empty() ? count : count / columns;
        for (std::int64_t i = 0; i < n; ++i)
          separate.tensor(name + suffix).set(i, fused.tensor("qkv" + suffix).at(part * n + i));
      }
    };
    copy("q", 0, rows * columns), copy("k", 1, rows * columns), copy("v", 2, rows * columns);
    fused.options.product = separate.options.product = "cpu.own";
    fused.run(), separate.run();
    EXPECT_EQ(fused.values("y"), separate.values("y"));
    EXPECT_EQ(fused.values("dout"), separate.values("dout"));
    if (dtype != DType::fp32) {
      EXPECT_EQ(fused.values("dx"), separate.values("dx"));
    }
    for (const std::string suffix : {"", ".bias"}) {
      std::vector<float> parts;
      for (const char* name : {"dq", "dk", "dv"}) {
        const std::vector<float> part = separate.values(name + suffix);
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_EQ(fused.values("dqkv" + suffix), parts) << static_cast<int>(dtype);
    }
  }
}

// On a GPU, copies of large weights take longer than partial sums of a short dx. In fp16 a partial sum may overflow.
TEST(Layers, LargeWeightsOnAGpuAreNotPacked) {
  const auto sums = [](std::int64_t width, DType dtype, DeviceKind device, std::int64_t len = 7) {
    LayerProblem p = problem_of({.kind = LayerKind::mha,
                                 .width = width,
                                 .width_kv = width,
                                 .dim_qk = width / 4,
                                 .dim_v = width / 4,
                                 .dtype = dtype,
                                 .result = dtype});
    p.pass = Pass::backward, p.device = {device, 0}, p.wants_dx = true, p.len_q = p.len_k = len;
    std::vector<bool> adds;  // of the products that give dx
    for (const Product& product : products_of(p)) {
      if (product.source == Source::x && product.problem.wants_dx) adds.push_back(product.problem.accumulate_dx);
    }
    return adds;
  };
  const std::vector<bool> packed = {false}, added = {false, true, true};
  EXPECT_EQ(sums(2560, DType::bf16, DeviceKind::cuda), added);
  EXPECT_EQ(sums(1600, DType::bf16, DeviceKind::cuda), packed) << "15 MiB take less time than two products";
  EXPECT_EQ(sums(2560, DType::bf16, DeviceKind::cuda, 4096), packed) << "38 MiB, and dx has 40";
  EXPECT_EQ(sums(2560, DType::fp16, DeviceKind::cuda), packed);
  EXPECT_EQ(sums(2560, DType::bf16, DeviceKind::cpu), packed);
  EXPECT_EQ(sums(64, DType::fp32, DeviceKind::cuda), added);
}

}  // namespace
}  // namespace fovea::layers
