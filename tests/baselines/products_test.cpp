// Every road of a matrix product gives the product: libraries in fp32, widened 16-bit pieces, oneDNN's primitive.
#include "baselines/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "baselines/conversions.h"
#include "baselines/matmul_primitive.h"

namespace fovea::baselines {
namespace {

// Random numbers of a type in rows of a stride, and their exact values.
struct Matrix {
  Factor factor{};
  std::vector<float> memory, values;

  Matrix(std::int64_t rows, std::int64_t columns, std::int64_t padding, DType dtype, bool transposed, unsigned seed) {
    if (transposed) std::swap(rows, columns);
    const std::int64_t stride = columns + padding, count = rows * stride;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    values.resize(static_cast<std::size_t>(count));
    memory.resize(values.size());
    for (float& value : values) value = normal(random);
    narrow_row(memory.data(), dtype, 0, values.data(), count);
    widen_row(values.data(), dtype, memory.data(), 0, count);
    factor = {memory.data(), dtype, stride, transposed};
  }

  double at(std::int64_t row, std::int64_t column) const {
    if (factor.transposed) std::swap(row, column);
    return values[static_cast<std::size_t>(row * factor.stride + column)];
  }
};

struct Sizes {
  std::int64_t m, n, k;
};
// Attention's shapes: scores, outputs, gradients of keys; then sizes of 1, odd ones, and more than one widened piece.
constexpr Sizes kSizes[] = {{256, 300, 64}, {256, 64, 1100}, {37, 128, 515}, {1, 1, 1},   {1, 9, 1},    {33, 1, 70},
                            {3, 600, 5},    {2, 7, 513},     {71, 71, 63},   {1, 80, 63}, {63, 80, 95}, {71, 63, 71}};

// The error of an fp32 sum of k products is at most k / 2^24 of the sum of their sizes, in any order.
void expect_product(void (*multiply_so)(const Product&), DType dtype, const Sizes& sizes, int variant) {
  const bool a_transposed = (variant & 1) != 0, b_transposed = (variant & 2) != 0;
  const std::int64_t padding = (variant & 4) != 0 ? 5 : 0;
  const float alpha = (variant & 8) != 0 ? 0.25f : 1.0f, beta = (variant & 16) != 0 ? 1.0f : 0.0f;
  const auto [m, n, k] = sizes;
  const Matrix a(m, k, padding, dtype, a_transposed, 1), b(k, n, padding, dtype, b_transposed, 2);
  const std::int64_t stride = n + padding;
  const float before = beta == 0.0f ? NAN : 0.5f;
  std::vector<float> c(static_cast<std::size_t>(m * stride), before);
  multiply_so({m, n, k, alpha, a.factor, b.factor, beta, c.data(), stride});
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < stride; ++j) {
      const float got = c[static_cast<std::size_t>(i * stride + j)];
      if (j >= n) {
        ASSERT_TRUE(beta == 0.0f ? std::isnan(got) : got == before) << "padding written at " << i << ", " << j;
        continue;
      }
      double sum = beta == 0.0f ? 0.0 : before, size = sum;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += alpha * a.at(i, l) * b.at(l, j);
        size += alpha * std::fabs(a.at(i, l) * b.at(l, j));
      }
      ASSERT_LE(std::fabs(got - sum), static_cast<double>(k + 2) * 0x1p-24 * size)
          << m << " x " << n << " x " << k << ", variant " << variant << ", at " << i << ", " << j;
    }
  }
}

void expect_products(void (*multiply_so)(const Product&), DType dtype) {
  for (const Sizes& sizes : kSizes)
    for (int variant = 0; variant < 32; ++variant) expect_product(multiply_so, dtype, sizes, variant);
}

TEST(Products, AreRightForEveryType) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) expect_products(multiply, dtype);
}

TEST(Products, ThePrimitiveIsRightInFp32) { expect_products(multiply_by_primitive, DType::fp32); }

TEST(Products, ThePrimitiveIsRightInBf16) {
  if (!has_bf16_products()) GTEST_SKIP() << "this processor does not multiply bf16 pairs";
  for (Sizes sizes : kSizes) {
    sizes.k = (sizes.k + 31) / 32 * 32;
    for (int variant = 0; variant < 32; ++variant) expect_product(multiply_by_primitive, DType::bf16, sizes, variant);
  }
}

TEST(Products, TakeFactorsOfTwoTypes) {
  const Matrix a(20, 30, 0, DType::bf16, false, 1), b(30, 10, 0, DType::fp32, false, 2);
  std::vector<float> c(200);
  multiply({20, 10, 30, 1.0f, a.factor, b.factor, 0.0f, c.data(), 10});
  double sum = 0, size = 0;
  for (std::int64_t l = 0; l < 30; ++l) {
    sum += a.at(19, l) * b.at(l, 9);
    size += std::abs(a.at(19, l) * b.at(l, 9));
  }
  EXPECT_NEAR(c[199], sum, 30 * 0x1p-24 * size);  // each term is rounded as product and in 29 sums at most
}

TEST(Conversions, NarrowInPlace) {
  std::vector<float> row(1500);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = 0.1f + static_cast<float>(i);
  std::vector<std::uint16_t> bits(row.size());
  narrow_row(bits.data(), DType::bf16, 0, row.data(), std::ssize(row));
  narrow_in_place(DType::bf16, row.data(), std::ssize(row));
  const auto* got = reinterpret_cast<const std::uint16_t*>(row.data());
  for (std::size_t i = 0; i < bits.size(); ++i) ASSERT_EQ(got[i], bits[i]) << i;
}

}  // namespace
}  // namespace fovea::baselines
