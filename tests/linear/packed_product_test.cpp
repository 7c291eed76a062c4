// The engine's own product: exact for whole numbers in every shape, memory order and number of threads, in parts of the
// contracted dimension, of a result that is rounded, and of a batch.
#include "linear/packed_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/float16.h"
#include "core/memory.h"

namespace fovea::linear {
namespace {

// Whole numbers from -2 to 2, so that every sum is exact in fp32; NaN between the rows.
struct Numbers {
  MatrixBatch view{};
  std::vector<float> memory;
  std::vector<int> values;

  Numbers(std::int64_t count, std::int64_t rows, std::int64_t columns, bool transposed, DType dtype, unsigned seed) {
    if (transposed) std::swap(rows, columns);
    const std::int64_t stride = columns + 3, all = (count * rows - 1) * stride + columns;
    values.resize(static_cast<std::size_t>(all));
    memory.resize(static_cast<std::size_t>((all * size_of(dtype) + 3) / 4));
    for (std::int64_t i = 0; i < all; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const int value = static_cast<int>(seed >> 24) % 5 - 2;
      values[static_cast<std::size_t>(i)] = value;
      core::store_from_float(memory.data(), dtype, i, i % stride < columns ? static_cast<float>(value) : NAN);
    }
    view = {memory.data(), dtype, stride, rows * stride, transposed};
  }

  int at(std::int64_t number, std::int64_t row, std::int64_t column) const {
    if (view.transposed) std::swap(row, column);
    return values[static_cast<std::size_t>(number * view.batch_stride + row * view.row_stride + column)];
  }
};

struct Case {
  std::int64_t count, m, n, k;
  DType dtype = DType::fp32, result = DType::fp32;
};

void run(const BatchedProduct& p, const Case& c, int threads) {
  const PackedRoom room = packed_room(PackedLayout({c.m, c.n, c.k, c.dtype, c.result}));
  const core::WorkspaceLease workspace(room.bytes(), "test");
  multiply_packed(p, PackedLayout({p.m, p.n, p.k, c.dtype, c.result}), room, workspace.data(),
                  {.workspace = workspace.data(), .threads = threads});
}

void expect_right(const Case& c, int variant) {
  SCOPED_TRACE(std::to_string(c.m) + " x " + std::to_string(c.n) + " x " + std::to_string(c.k) + ", variant " +
               std::to_string(variant));
  const Numbers a(c.count, c.m, c.k, (variant & 1) != 0, c.dtype, 1),
      b(c.count, c.k, c.n, (variant & 2) != 0, c.dtype, 2);
  const bool adds = (variant & 4) != 0 && c.result == DType::fp32;
  const std::int64_t stride = c.n + 5;
  const float before = adds ? 1.0f : NAN;
  std::vector<float> one(static_cast<std::size_t>(c.count * c.m * stride));
  for (std::size_t i = 0; i < one.size(); ++i)
    core::store_from_float(one.data(), c.result, static_cast<std::int64_t>(i), before);
  std::vector<float> three = one;
  BatchedProduct p{
      c.count, c.m, c.n, c.k, 2.0f, a.view, b.view, adds ? 1.0f : 0.0f, {one.data(), c.result, stride, c.m * stride}};
  run(p, c, 1);
  p.c.data = three.data();
  run(p, c, 3);
  for (std::int64_t number = 0; number < c.count; ++number) {
    for (std::int64_t i = 0; i < c.m; ++i) {
      std::vector<int> sums(static_cast<std::size_t>(c.n));
      for (std::int64_t l = 0; l < c.k; ++l)
        for (std::int64_t j = 0; j < c.n; ++j)
          sums[static_cast<std::size_t>(j)] += a.at(number, i, l) * b.at(number, l, j);
      for (std::int64_t j = 0; j < stride; ++j) {
        const std::int64_t at = (number * c.m + i) * stride + j;
        const float got = core::load_as_float(one.data(), c.result, at),
                    other = core::load_as_float(three.data(), c.result, at);
        if (j >= c.n) {
          ASSERT_TRUE(adds ? got == before : std::isnan(got)) << "written beside row " << i;
          continue;
        }
        const float wanted = 2.0f * static_cast<float>(sums[static_cast<std::size_t>(j)]) + (adds ? before : 0.0f);
        float rounded = 0;
        core::store_from_float(&rounded, c.result, 0, wanted);
        ASSERT_EQ(got, core::load_as_float(&rounded, c.result, 0)) << number << ", " << i << ", " << j;
        ASSERT_EQ(other, got) << "with three threads";
      }
    }
  }
}

TEST(PackedProduct, IsRightForEverySizeOfAnEdge) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const std::int64_t m : {1, 3, 4, 8, 9, 12, 13, 25})
      for (const std::int64_t n : {1, 7, 16, 17, 31, 33, 65})
        for (const std::int64_t k : {1, 2, 15, 16, 33})
          expect_right({1, m, n, k, dtype}, static_cast<int>(m + n + k) % 8);
  }
}

TEST(PackedProduct, IsRightForEveryMemoryOrder) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16})
    for (int variant = 0; variant < 8; ++variant)
      expect_right({2, 61, 130, 77, dtype, variant % 3 == 0 ? dtype : DType::fp32}, variant);
}

// Blocks of the contracted dimension, the last one shorter; more of them than are packed at once.
TEST(PackedProduct, IsRightInPartsOfTheSum) {
  for (int variant = 0; variant < 8; ++variant) expect_right({1, 30, 40, 1001}, variant);
  expect_right({1, 400, 500, 2001}, 4);
  expect_right({1, 400, 300, 2001, DType::fp16, DType::fp16}, 1);
}

// Large tiles of rows, then small ones; more columns than are packed at once.
TEST(PackedProduct, IsRightInTilesOfEveryHeight) {
  for (const std::int64_t m : {47, 64, 100, 577, 700, 1800}) expect_right({1, m, 40, 20}, static_cast<int>(m) % 8);
  for (const std::int64_t m : {3, 30}) expect_right({1, m, 4200, 10}, static_cast<int>(m) % 8);
}

TEST(PackedProduct, IsRightInPartsOfARoundedResult) { expect_right({1, 2100, 2060, 3, DType::bf16, DType::bf16}, 2); }

TEST(PackedProduct, IsRightInPartsOfABatch) {
  expect_right({70, 20, 400, 40}, 1);
  expect_right({9, 40, 40, 40, DType::fp16, DType::fp16}, 3);
}

// A plan has the room of a whole product. Its rows or columns may be split into a batch.
TEST(PackedProduct, IsRightInTheRoomOfALargerProduct) {
  const Case whole{1, 600, 900, 1500}, split{3, 200, 900, 1500};
  EXPECT_LT(packed_room(PackedLayout({whole.m, whole.n, whole.k, DType::fp32, DType::fp32})).bytes(),
            std::int64_t{1} << 24);
  const Numbers a(split.count, split.m, split.k, false, DType::fp32, 1), b(1, split.k, split.n, true, DType::fp32, 2);
  std::vector<float> c(static_cast<std::size_t>(whole.m * whole.n)), parts(c.size());
  MatrixBatch shared = b.view;
  shared.batch_stride = 0;
  run({1, whole.m, whole.n, whole.k, 1.0f, a.view, b.view, 0.0f, {c.data(), DType::fp32, whole.n}}, whole, 2);
  run({3,
       split.m,
       split.n,
       split.k,
       1.0f,
       a.view,
       shared,
       0.0f,
       {parts.data(), DType::fp32, whole.n, split.m * whole.n}},
      whole, 2);
  EXPECT_EQ(parts, c);
}

}  // namespace
}  // namespace fovea::linear
