// Row passes on the CPU against their formulas: values, gradients, positions, memory orders, threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "expected_rows.h"
#include "heads/host.h"
#include "linear_tensors.h"

namespace fovea::heads {
namespace {

using linear::Order;
using linear::TestTensor;

constexpr double kEpsilon = 1e-5;

core::RunContext threads(int count) { return {.threads = count}; }

Row row_of(const TestTensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i) {
  Row row;
  const auto& strides = tensor.view.strides;
  for (std::int64_t c = 0; c < tensor.view.sizes[3]; ++c)
    row.push_back(tensor.at(b * strides[0] + h * strides[1] + i * strides[2] + c));
  return row;
}

// The largest distance from `expected`, in units of the type at 1, or at a larger expected number.
double off(const Row& got, const Row& expected, DType dtype) {
  const double unit = dtype == DType::fp32 ? 0x1p-24 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  double worst = 0;
  for (std::size_t c = 0; c < got.size(); ++c) {
    if (!std::isfinite(got[c])) return INFINITY;
    worst = std::max(worst, std::abs(got[c] - expected[c]) / unit / std::max(1.0, std::abs(expected[c])));
  }
  return worst;
}

double length_of(const Row& row, const Rotation& r, std::size_t column) {
  const auto pairs = static_cast<std::size_t>(r.columns / 2);
  const std::size_t at = column - static_cast<std::size_t>(r.first_column);
  const std::size_t other = r.pairs == RotaryPairs::halves ? (at < pairs ? at + pairs : at - pairs) : at ^ 1;
  return std::hypot(row[column], row[static_cast<std::size_t>(r.first_column) + other]);
}

constexpr Rotation kRotations[] = {
    {.columns = 16},
    {.pairs = RotaryPairs::halves, .columns = 16},
    {.theta = 500000, .pairs = RotaryPairs::halves, .columns = 8, .first_position = 5},
    {.theta = 1, .first_column = 6, .columns = 10},
    {.theta = 100, .pairs = RotaryPairs::halves, .first_column = 2, .columns = 14, .first_position = 31},
};

// The bound that fovea/rotary.h states, up to the last position.
TEST(Rotary, IsAsExactAsStatedAtEveryPosition) {
  for (Rotation rotation : kRotations) {
    for (const std::int64_t first :
         {std::int64_t{0}, std::int64_t{1} << 10, std::int64_t{1} << 20, Rotary::kMaxPosition - 69}) {
      rotation.first_position = first;
      TestTensor tensor({1, 2, 70, 16}, DType::fp32, Order::dense, 1),
          before({1, 2, 70, 16}, DType::fp32, Order::dense, 1);
      forward_on_host({.from = tensor.view, .to = tensor.view, .rotation = rotation}, threads(1));
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t i = 0; i < 70; ++i) {
          const Row from = row_of(before, 0, h, i), to = row_of(tensor, 0, h, i);
          const Row expected = rotated(from, rotation, first + i);
          for (std::int64_t c = 0; c < 16; ++c) {
            const auto at = static_cast<std::size_t>(c);
            if (c < rotation.first_column || c >= rotation.first_column + rotation.columns)
              ASSERT_EQ(to[at], from[at]);
            else
              ASSERT_LE(std::abs(to[at] - expected[at]), 3 * 0x1p-24 * length_of(from, rotation, at))
                  << "position " << first + i << " column " << c;
          }
        }
      }
    }
  }
}

TEST(Rotary, HeadsOf16BitsAreRoundedOnce) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const Order order : {Order::dense, Order::by_heads, Order::gaps}) {
      TestTensor from({2, 3, 40, 16}, dtype, order, 3), to({2, 3, 40, 16}, dtype, order, 0);
      forward_on_host({.from = from.view, .to = to.view, .rotation = kRotations[4]}, threads(2));
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t h = 0; h < 3; ++h) {
          for (std::int64_t i = 0; i < 40; ++i) {
            const Row expected = rotated(row_of(from, b, h, i), kRotations[4], 31 + i), got = row_of(to, b, h, i);
            for (std::size_t c = 0; c < 16; ++c)
              ASSERT_NEAR(got[c], expected[c],
                          std::abs(expected[c]) * (dtype == DType::bf16 ? 0x1p-8 : 0x1p-11) + 1e-6);
          }
        }
      }
      EXPECT_EQ(to.gaps_written(), 0);
    }
  }
}

// Step by step, in several calls, or with other rows: a row depends on its position only.
TEST(Rotary, ARowHasTheSameBitsInEveryCall) {
  const Rotation rotation{.columns = 16, .first_position = 20};
  TestTensor all({1, 2, 90, 16}, DType::fp32, Order::dense, 4), steps({1, 2, 90, 16}, DType::fp32, Order::dense, 4);
  forward_on_host({.from = all.view, .to = all.view, .rotation = rotation}, threads(3));
  for (std::int64_t i = 0; i < 90; ++i) {
    MutableTensorView row = steps.view;
    row.data = static_cast<float*>(row.data) + i * row.strides[2];
    row.sizes[2] = 1;
    Rotation at = rotation;
    at.first_position += i;
    forward_on_host({.from = row, .to = row, .rotation = at}, threads(1));
  }
  EXPECT_EQ(all.all(), steps.all());
}

TEST(Rotary, BackwardRotatesBack) {
  for (const Rotation& rotation : kRotations) {
    TestTensor tensor({2, 2, 40, 16}, DType::fp32, Order::gaps, 5);
    const std::vector<float> before = tensor.all();
    forward_on_host({.from = tensor.view, .to = tensor.view, .rotation = rotation}, threads(1));
    EXPECT_NE(tensor.all(), before);
    backward_on_host({.dy = tensor.view, .dx = tensor.view, .rotation = rotation}, threads(1));
    const std::vector<float> after = tensor.all();
    for (std::size_t i = 0; i < after.size(); ++i) ASSERT_NEAR(after[i], before[i], 2e-6);
  }
}

// One head that all heads read, as the shared rotary key of latent attention; its gradient is the sum over the heads.
TEST(Rotary, OneHeadServesAllHeads) {
  const Rotation rotation{.columns = 16, .first_position = 3};
  TestTensor key({2, 1, 40, 16}, DType::fp32, Order::dense, 6), keys({2, 4, 40, 16}, DType::fp32, Order::dense, 0),
      gradient({2, 4, 40, 16}, DType::fp32, Order::dense, 7), sum({2, 1, 40, 16}, DType::fp32, Order::dense, 0);
  TensorView shared = key.view;
  shared.sizes[1] = 4, shared.strides[1] = 0;
  forward_on_host({.from = shared, .to = keys.view, .rotation = rotation}, threads(2));
  backward_on_host({.dy = gradient.view, .dx = sum.view, .rotation = rotation}, threads(2));
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t i = 0; i < 40; ++i) {
      Row total(16);
      for (std::int64_t h = 0; h < 4; ++h) {
        EXPECT_LE(off(row_of(keys, b, h, i), rotated(row_of(key, b, 0, i), rotation, 3 + i), DType::fp32), 12);
        const Row one = row_of(gradient, b, h, i);
        for (std::size_t c = 0; c < 16; ++c) total[c] += one[c];
      }
      EXPECT_LE(off(row_of(sum, b, 0, i), rotated(total, rotation, 3 + i, -1), DType::fp32), 40);
    }
  }
}

struct NormCase {
  DType dtype;
  std::int64_t dim;
  bool rotates;
};

class Norm : public testing::TestWithParam<NormCase> {
 protected:
  Norm() {
    if (GetParam().rotates) rotation = Rotation{.columns = GetParam().dim / 2 * 2, .first_position = 9};
    for (TestTensor* const one : {&x, &dy}) one->for_each([one](std::int64_t i) { one->set(i, one->at(i) * 2); });
  }
  double tolerance() const { return GetParam().dtype == DType::fp32 ? 40 : 12; }  // units at 1; values are up to 8

  Sizes sizes{2, 3, 70, GetParam().dim};
  std::optional<Rotation> rotation;
  TestTensor x{sizes, GetParam().dtype, Order::gaps, 8}, y{sizes, GetParam().dtype, Order::gaps, 0},
      dy{sizes, GetParam().dtype, Order::gaps, 9}, dx{sizes, GetParam().dtype, Order::gaps, 0},
      weight{{1, 1, 1, GetParam().dim}, GetParam().dtype, Order::dense, 10};
};

TEST_P(Norm, ForwardIsTheFormula) {
  forward_on_host({x.view, y.view, weight.view, kEpsilon, rotation}, threads(2));
  const Row w = row_of(weight, 0, 0, 0);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 3; ++h) {
      for (std::int64_t i = 0; i < 70; ++i) {
        Row expected = normalised(row_of(x, b, h, i), w, kEpsilon);
        if (rotation) expected = rotated(expected, *rotation, 9 + i);
        ASSERT_LE(off(row_of(y, b, h, i), expected, GetParam().dtype), tolerance());
      }
    }
  }
  EXPECT_EQ(y.gaps_written(), 0);
}

TEST_P(Norm, BackwardIsTheDerivative) {
  const std::int64_t rows = partial_rows_on_host(70, rotation);
  std::vector<float> partial(static_cast<std::size_t>(rows * GetParam().dim), NAN);
  TestTensor dweight(weight.view.sizes, DType::fp32, Order::dense, 0);
  backward_on_host({x.view, dy.view, dx.view, weight.view, kEpsilon, rotation, partial.data()}, threads(2));
  sum_on_host({partial.data(), rows, dweight.view, false}, threads(1));
  const Row w = row_of(weight, 0, 0, 0);
  Row expected_dweight(w.size());
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 3; ++h) {
      for (std::int64_t i = 0; i < 70; ++i) {
        const Row row = row_of(x, b, h, i);
        Row g = row_of(dy, b, h, i);
        if (rotation) g = rotated(g, *rotation, 9 + i, -1);
        ASSERT_LE(off(row_of(dx, b, h, i), norm_gradient(row, w, kEpsilon, g), GetParam().dtype), 2 * tolerance());
        for (std::size_t c = 0; c < w.size(); ++c) expected_dweight[c] += g[c] * row[c] * factor_of(row, kEpsilon);
      }
    }
  }
  const Row got = row_of(dweight, 0, 0, 0);
  EXPECT_LE(off(got, expected_dweight, DType::fp32), 2e3);
  sum_on_host({partial.data(), rows, dweight.view, true}, threads(1));
  for (std::size_t c = 0; c < got.size(); ++c) EXPECT_NEAR(row_of(dweight, 0, 0, 0)[c], 2 * got[c], 1e-4);
}

TEST_P(Norm, BackwardAddsToWhatIsThere) {
  TestTensor sum(dx.view.sizes, DType::fp32, Order::dense, 7), alone(dx.view.sizes, DType::fp32, Order::dense, 0);
  const std::vector<float> before = sum.all();
  RowPassBackward pass{x.view, dy.view, alone.view, weight.view, kEpsilon, rotation};
  backward_on_host(pass, threads(1));
  pass.dx = sum.view, pass.accumulate = true;
  backward_on_host(pass, threads(3));
  const std::vector<float> after = sum.all(), gradient = alone.all();
  for (std::size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], before[i] + gradient[i]) << i;
}

TEST_P(Norm, AnyNumberOfThreadsAndInPlaceGiveTheSameBits) {
  const std::int64_t rows = partial_rows_on_host(70, rotation);
  std::vector<float> one(static_cast<std::size_t>(rows * GetParam().dim)), many = one;
  forward_on_host({x.view, y.view, weight.view, kEpsilon, rotation}, threads(1));
  backward_on_host({x.view, dy.view, dx.view, weight.view, kEpsilon, rotation, one.data()}, threads(1));
  backward_on_host({x.view, dy.view, dy.view, weight.view, kEpsilon, rotation, many.data()}, threads(5));
  forward_on_host({x.view, x.view, weight.view, kEpsilon, rotation}, threads(5));
  EXPECT_EQ(x.all(), y.all());
  EXPECT_EQ(dx.all(), dy.all());
  EXPECT_EQ(one, many);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Norm,
                         testing::Values(NormCase{DType::fp32, 16, false}, NormCase{DType::fp32, 37, true},
                                         NormCase{DType::bf16, 64, true}, NormCase{DType::fp16, 1, false},
                                         NormCase{DType::fp16, 50, true}));

// The formula's gradient is the slope of the formula.
TEST(ExpectedRows, GradientsAreCentralDifferences) {
  Row x, w, g;
  for (int c = 0; c < 7; ++c)
    x.push_back(std::sin(c + 1.0)), w.push_back(std::cos(3.0 * c)), g.push_back(std::sin(5.0 * c + 2));
  const Row dx = norm_gradient(x, w, kEpsilon, g);
  const auto loss = [&](const Row& at) {
    double sum = 0;
    const Row y = normalised(at, w, kEpsilon);
    for (std::size_t c = 0; c < y.size(); ++c) sum += g[c] * y[c];
    return sum;
  };
  for (std::size_t c = 0; c < x.size(); ++c) {
    Row less = x, more = x;
    less[c] -= 1e-5, more[c] += 1e-5;
    EXPECT_NEAR(dx[c], (loss(more) - loss(less)) / 2e-5, 1e-9);
  }
}

TEST(RowPasses, NoRowsAreNoWork) {
  TestTensor none({2, 3, 0, 8}, DType::fp32, Order::dense, 0), weight({1, 1, 1, 8}, DType::fp32, Order::dense, 1),
      dweight({1, 1, 1, 8}, DType::fp32, Order::dense, 0);
  forward_on_host({.from = none.view, .to = none.view, .weight = weight.view, .rotation = Rotation{.columns = 8}},
                  threads(2));
  EXPECT_EQ(partial_rows_on_host(0, Rotation{.columns = 8, .first_position = 40}), 0);
  sum_on_host({nullptr, 0, dweight.view, false}, threads(1));
  for (const float value : dweight.all()) EXPECT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace fovea::heads
