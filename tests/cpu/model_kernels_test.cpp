// The kernels of a transformer, of every instruction set: values against loops in double precision, gradients against
// central differences of those loops. In bf16 they give the bits of fp32 on the same numbers, rounded once.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "core/float16.h"
#include "core/random.h"
#include "engine.h"

namespace fovea::cpu {
namespace {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

std::vector<const ModelKernels*> model_kernels() {
  std::vector<const ModelKernels*> all;
  for (const Kernels* kernels : all_kernels()) all.push_back(&kernels->model);
  return all;
}

Floats numbers(std::size_t count, std::uint64_t seed, float factor = 1.0f) {
  Floats all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = factor * core::approximate_normal(core::philox(seed, 0, i));
  return all;
}

using Bits = std::vector<std::uint16_t>;

Bits rounded(const Floats& values) {
  Bits bits;
  for (const float one : values) bits.push_back(core::float_to_bf16(one));
  return bits;
}

Floats widened(const Bits& bits) {
  Floats all;
  for (const std::uint16_t one : bits) all.push_back(core::bf16_to_float(one));
  return all;
}

Doubles doubles(const Floats& values) { return {values.begin(), values.end()}; }

void expect_near(const Floats& values, const Doubles& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(values.size(), expected.size());
  double largest = 1e-30;
  for (const double one : expected) largest = std::max(largest, std::abs(one));
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], tolerance * largest) << what << " at " << i;
}

// The derivative of sum(weight * of(x)) by each x.
Doubles differences(const Doubles& x, const Floats& weight, const std::function<Doubles(const Doubles&)>& of) {
  Doubles gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    constexpr double kStep = 1e-5;
    Doubles up = x, down = x;
    up[i] += kStep, down[i] -= kStep;
    const Doubles above = of(up), below = of(down);
    for (std::size_t n = 0; n < above.size(); ++n) gradient[i] += weight[n] * (above[n] - below[n]) / (2 * kStep);
  }
  return gradient;
}

Doubles reference_norm(const Doubles& x, const Doubles& weight, double epsilon) {
  const std::size_t columns = weight.size();
  Doubles y(x.size());
  for (std::size_t row = 0; row < x.size(); row += columns) {
    double squares = 0;
    for (std::size_t c = 0; c < columns; ++c) squares += x[row + c] * x[row + c];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(columns) + epsilon);
    for (std::size_t c = 0; c < columns; ++c) y[row + c] = x[row + c] * inverse * weight[c];
  }
  return y;
}

Doubles reference_swiglu(const Doubles& gate_up, std::size_t columns) {
  Doubles out;
  for (std::size_t row = 0; row < gate_up.size(); row += 2 * columns)
    for (std::size_t c = 0; c < columns; ++c)
      out.push_back(gate_up[row + c] / (1 + std::exp(-gate_up[row + c])) * gate_up[row + columns + c]);
  return out;
}

class ModelKernelSizes : public testing::TestWithParam<std::int64_t> {
 protected:
  static constexpr std::int64_t kRows = 3;
  static constexpr float kEpsilon = 1e-3f;
  std::int64_t columns = GetParam();
  std::size_t count = static_cast<std::size_t>(kRows * GetParam());
};

TEST_P(ModelKernelSizes, RmsNorm) {
  const Floats x = numbers(count, 1), branch = numbers(count, 2),
               weight = numbers(static_cast<std::size_t>(columns), 3);
  Doubles both = doubles(x);
  for (std::size_t i = 0; i < count; ++i) both[i] = x[i] + branch[i];
  for (const ModelKernels* kernels : model_kernels()) {
    Floats sum(count, NAN), y(count, NAN), inverse(kRows, NAN);
    kernels->rms_norm({x.data(), nullptr, nullptr, weight.data(), y.data(), inverse.data(), kRows, columns, kEpsilon});
    expect_near(y, reference_norm(doubles(x), doubles(weight), kEpsilon), 1e-6, "y");
    kernels->rms_norm(
        {x.data(), branch.data(), sum.data(), weight.data(), y.data(), inverse.data(), kRows, columns, kEpsilon});
    expect_near(sum, both, 1e-6, "sum");
    expect_near(y, reference_norm(both, doubles(weight), kEpsilon), 1e-6, "y of the sum");
  }
}

TEST_P(ModelKernelSizes, RmsNormBackward) {
  const Floats x = numbers(count, 1), dy = numbers(count, 4), weight = numbers(static_cast<std::size_t>(columns), 3);
  const Doubles dx = differences(
      doubles(x), dy, [&](const Doubles& changed) { return reference_norm(changed, doubles(weight), kEpsilon); });
  const Doubles dweight = differences(
      doubles(weight), dy, [&](const Doubles& changed) { return reference_norm(doubles(x), changed, kEpsilon); });
  Doubles added = dx;
  for (double& one : added) one += 2;
  for (const ModelKernels* kernels : model_kernels()) {
    Floats y(count), inverse(kRows), result(count, NAN), weights(static_cast<std::size_t>(columns), NAN);
    kernels->rms_norm({x.data(), nullptr, nullptr, weight.data(), y.data(), inverse.data(), kRows, columns, kEpsilon});
    RmsNormBackwardTask t{x.data(), weight.data(),  inverse.data(), dy.data(), result.data(),
                          false,    weights.data(), kRows,          columns};
    kernels->rms_norm_backward(t);
    expect_near(result, dx, 3e-6, "dx");
    expect_near(weights, dweight, 3e-6, "dweight");
    result.assign(count, 2.0f);
    t.accumulate = true;
    kernels->rms_norm_backward(t);
    expect_near(result, added, 3e-6, "dx, added");
  }
}

TEST_P(ModelKernelSizes, Swiglu) {
  const Floats gate_up = numbers(2 * count, 5, 2.0f), dout = numbers(count, 6);
  const auto of = [&](const Doubles& changed) { return reference_swiglu(changed, static_cast<std::size_t>(columns)); };
  const Doubles out = of(doubles(gate_up)), dgate_up = differences(doubles(gate_up), dout, of);
  for (const ModelKernels* kernels : model_kernels()) {
    Floats result(count, NAN), gradient(2 * count, NAN), in_place = gate_up;
    kernels->swiglu({gate_up.data(), result.data(), kRows, columns});
    expect_near(result, out, 1e-6, "out");
    kernels->swiglu_backward({gate_up.data(), dout.data(), gradient.data(), kRows, columns});
    expect_near(gradient, dgate_up, 2e-6, "dgate_up");
    Floats again = dout;
    kernels->swiglu_backward(
        {in_place.data(), again.data(), in_place.data(), kRows, columns, Element::fp32, again.data()});
    EXPECT_EQ(in_place, gradient);
    expect_near(again, out, 1e-6, "out again");
  }
}

TEST_P(ModelKernelSizes, CrossEntropy) {
  const Floats logits = numbers(count, 7, 3.0f);
  const std::vector<std::int32_t> targets{0, static_cast<std::int32_t>(columns - 1),
                                          static_cast<std::int32_t>(columns / 2)};
  const auto losses = [&](const Doubles& x) {
    Doubles all;
    for (std::size_t r = 0; r < targets.size(); ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < columns; ++c)
        sum += std::exp(x[r * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c)]);
      all.push_back(std::log(sum) - x[r * static_cast<std::size_t>(columns) + static_cast<std::size_t>(targets[r])]);
    }
    return all;
  };
  const Doubles expected = losses(doubles(logits));
  const Doubles gradient = differences(doubles(logits), Floats(kRows, 0.25f), losses);
  for (const ModelKernels* kernels : model_kernels()) {
    std::vector<RowLoss> rows(kRows);
    Floats values = logits;
    kernels->cross_entropy({values.data(), targets.data(), rows.data(), kRows, columns, 0.0f});
    EXPECT_EQ(values, logits) << "without a gradient, logits stay";
    kernels->cross_entropy({values.data(), targets.data(), rows.data(), kRows, columns, 0.25f});
    for (std::size_t r = 0; r < rows.size(); ++r)
      EXPECT_NEAR(std::log(static_cast<double>(rows[r].sum)) + (rows[r].maximum - rows[r].logit), expected[r], 3e-6);
    for (std::size_t i = 0; i < count; ++i) EXPECT_NEAR(values[i], gradient[i], 3e-7) << i;
  }
}

TEST_P(ModelKernelSizes, RowsOfATable) {
  const Floats table = numbers(static_cast<std::size_t>(5 * columns), 8),
               drows = numbers(4 * static_cast<std::size_t>(columns), 9);
  const std::vector<std::int32_t> tokens{4, 0, 4, 2};
  Doubles rows, sums(table.size(), 1.0);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto at = static_cast<std::size_t>(tokens[i] * columns + c);
      rows.push_back(table[at]);
      sums[at] += drows[i * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c)];
    }
  }
  for (const ModelKernels* kernels : model_kernels()) {
    Floats result(rows.size(), NAN), gradient(table.size(), 1.0f);
    kernels->gather({table.data(), tokens.data(), result.data(), 4, columns});
    expect_near(result, rows, 0, "rows");
    const std::int64_t half = columns / 2;
    kernels->scatter({drows.data(), tokens.data(), gradient.data(), 4, columns, 0, half});
    kernels->scatter({drows.data(), tokens.data(), gradient.data(), 4, columns, half, columns - half});
    expect_near(gradient, sums, 1e-6, "dtable");
  }
}

TEST_P(ModelKernelSizes, AdamW) {
  const auto some = static_cast<std::size_t>(columns);
  const Floats weight = numbers(some, 10), gradient = numbers(some, 11), m = numbers(some, 12, 0.1f);
  Floats v = numbers(some, 13);
  for (float& one : v) one *= one;
  constexpr double kRate = 1e-2, kBeta1 = 0.9, kBeta2 = 0.95, kDecay = 0.1, kFactor = 0.5, kSteps = 3;
  Doubles m_after, v_after, weight_after;
  double squares = 0;
  for (std::size_t i = 0; i < some; ++i) {
    const double g = kFactor * gradient[i];
    m_after.push_back(kBeta1 * m[i] + (1 - kBeta1) * g);
    v_after.push_back(kBeta2 * v[i] + (1 - kBeta2) * g * g);
    const double mean = m_after[i] / (1 - std::pow(kBeta1, kSteps)),
                 square = v_after[i] / (1 - std::pow(kBeta2, kSteps));
    weight_after.push_back(weight[i] * (1 - kRate * kDecay) - kRate * mean / (std::sqrt(square) + 1e-8));
    squares += static_cast<double>(gradient[i]) * gradient[i];
  }
  for (const ModelKernels* kernels : model_kernels()) {
    EXPECT_NEAR(kernels->sum_of_squares(gradient.data(), columns), squares, 1e-6 * squares);
    for (const bool streams : {false, true}) {
      Floats w = weight, first = m, second = v;
      Bits copy(some + 16);
      std::uint16_t* to = copy.data();
      while (reinterpret_cast<std::uintptr_t>(to) % 32 != 0) ++to;
      kernels->adamw({.weight = w.data(),
                      .m = first.data(),
                      .v = second.data(),
                      .gradient = gradient.data(),
                      .count = columns,
                      .gradient_factor = kFactor,
                      .rest1 = static_cast<float>(1 - kBeta1),
                      .rest2 = static_cast<float>(1 - kBeta2),
                      .beta2 = static_cast<float>(kBeta2),
                      .step_size = static_cast<float>(kRate / (1 - std::pow(kBeta1, kSteps))),
                      .v_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(kBeta2, kSteps))),
                      .epsilon = 1e-8f,
                      .decay = static_cast<float>(1 - kRate * kDecay),
                      .rounded = to,
                      .streams = streams});
      expect_near(first, m_after, 1e-6, "m");
      expect_near(second, v_after, 1e-6, "v");
      expect_near(w, weight_after, 1e-6, "weight");
      EXPECT_EQ(Bits(to, to + some), rounded(w));
    }
  }
}

TEST_P(ModelKernelSizes, RmsNormInBf16) {
  const Floats x = numbers(count, 1), weight = numbers(static_cast<std::size_t>(columns), 3);
  const Bits branch = rounded(numbers(count, 2)), dy = rounded(numbers(count, 4));
  const Floats wide_branch = widened(branch), wide_dy = widened(dy);
  for (const ModelKernels* kernels : model_kernels()) {
    Floats sum(count), y(count), inverse(kRows), bf16_sum(count), dx(count, 2.0f), bf16_dx = dx;
    Floats dweight(static_cast<std::size_t>(columns)), bf16_dweight = dweight;
    Bits bf16_y(count), rounded_dx(count);
    kernels->rms_norm(
        {x.data(), wide_branch.data(), sum.data(), weight.data(), y.data(), inverse.data(), kRows, columns, kEpsilon});
    kernels->rms_norm({x.data(), branch.data(), bf16_sum.data(), weight.data(), bf16_y.data(), inverse.data(), kRows,
                       columns, kEpsilon, Element::bf16});
    EXPECT_EQ(bf16_sum, sum);
    EXPECT_EQ(bf16_y, rounded(y));
    kernels->rms_norm_backward({x.data(), weight.data(), inverse.data(), wide_dy.data(), dx.data(), true,
                                dweight.data(), kRows, columns, kEpsilon});
    kernels->rms_norm_backward({x.data(), weight.data(), inverse.data(), dy.data(), bf16_dx.data(), true,
                                bf16_dweight.data(), kRows, columns, kEpsilon, Element::bf16, rounded_dx.data()});
    EXPECT_EQ(bf16_dx, dx);
    EXPECT_EQ(bf16_dweight, dweight);
    EXPECT_EQ(rounded_dx, rounded(dx));
  }
}

TEST_P(ModelKernelSizes, SwigluInBf16) {
  const Bits gate_up = rounded(numbers(2 * count, 5, 2.0f)), dout = rounded(numbers(count, 6));
  const Floats wide = widened(gate_up), wide_dout = widened(dout);
  for (const ModelKernels* kernels : model_kernels()) {
    Floats out(count), gradient(2 * count);
    Bits bf16_out(count), in_place = gate_up;
    kernels->swiglu({wide.data(), out.data(), kRows, columns});
    kernels->swiglu({gate_up.data(), bf16_out.data(), kRows, columns, Element::bf16});
    EXPECT_EQ(bf16_out, rounded(out));
    kernels->swiglu_backward({wide.data(), wide_dout.data(), gradient.data(), kRows, columns});
    Bits again = dout;
    kernels->swiglu_backward(
        {in_place.data(), again.data(), in_place.data(), kRows, columns, Element::bf16, again.data()});
    EXPECT_EQ(in_place, rounded(gradient));
    EXPECT_EQ(again, bf16_out);
  }
}

TEST_P(ModelKernelSizes, TheGradientOfLogitsInBf16FillsHalfOfEachRow) {
  const Floats logits = numbers(count, 7, 3.0f);
  const std::vector<std::int32_t> targets{0, static_cast<std::int32_t>(columns - 1),
                                          static_cast<std::int32_t>(columns / 2)};
  for (const ModelKernels* kernels : model_kernels()) {
    std::vector<RowLoss> rows(kRows), bf16_rows(kRows);
    Floats gradient = logits, memory = logits;
    kernels->cross_entropy({gradient.data(), targets.data(), rows.data(), kRows, columns, 0.25f});
    kernels->cross_entropy({memory.data(), targets.data(), bf16_rows.data(), kRows, columns, 0.25f, Element::bf16});
    const Bits wanted = rounded(gradient);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(bf16_rows[r].sum, rows[r].sum);
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::size_t row = r * static_cast<std::size_t>(columns);
        ASSERT_EQ(core::load_as_float(&memory[row], DType::bf16, c),
                  core::bf16_to_float(wanted[row + static_cast<std::size_t>(c)]))
            << r << " " << c;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, ModelKernelSizes, testing::Values(1, 5, 8, 16, 37, 64, 131));

TEST(ModelKernels, HugeNumbersStayInRange) {
  const Floats gate_up{-1000.0f, 1000.0f, 3.0f, 5.0f}, logits{1e30f, -1e30f, 1e30f};
  const std::vector<std::int32_t> target{0};
  for (const ModelKernels* kernels : model_kernels()) {
    Floats out(2), gradient(4), values = logits;
    kernels->swiglu({gate_up.data(), out.data(), 1, 2});
    EXPECT_NEAR(out[0], 0.0f, 1e-30);
    EXPECT_EQ(out[1], 5000.0f);
    const Floats dout{1.0f, 1.0f};
    kernels->swiglu_backward({gate_up.data(), dout.data(), gradient.data(), 1, 2});
    for (const float one : gradient) EXPECT_TRUE(std::isfinite(one));
    RowLoss row{};
    kernels->cross_entropy({values.data(), target.data(), &row, 1, 3, 1.0f});
    EXPECT_NEAR(std::log(row.sum) + (row.maximum - row.logit), std::log(2.0f), 1e-6);
    EXPECT_NEAR(values[0], -0.5f, 1e-6);
    EXPECT_NEAR(values[1], 0.0f, 1e-6);
  }
}

TEST(ModelKernels, NanStaysNan) {
  Floats logits{1.0f, NAN, 2.0f};
  const std::vector<std::int32_t> target{0};
  const Floats gate_up{NAN, 1.0f};
  for (const ModelKernels* kernels : model_kernels()) {
    RowLoss row{};
    kernels->cross_entropy({logits.data(), target.data(), &row, 1, 3, 0.0f});
    EXPECT_TRUE(std::isnan(row.sum));
    float out = 0;
    kernels->swiglu({gate_up.data(), &out, 1, 1});
    EXPECT_TRUE(std::isnan(out));
  }
}

}  // namespace
}  // namespace fovea::cpu
