// The products of every instruction set that this machine runs, and of the emulated ones, on panels that they packed.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "core/float16.h"
#include "engine.h"

namespace fovea::cpu {
namespace {

int number(std::int64_t row, std::int64_t column) {
  return static_cast<int>((row * 7 + column * 13 + row * column) % 5) - 2;
}

// rows x depth of a, or depth x columns of b: whole numbers in memory that ends with the last of them.
struct Input {
  std::vector<std::uint16_t> memory;
  InputRows rows{};

  Input(Element element, std::int64_t count, std::int64_t width, std::int64_t stride, bool swaps) {
    const DType type = element == Element::fp32 ? DType::fp32 : element == Element::bf16 ? DType::bf16 : DType::fp16;
    memory.resize(static_cast<std::size_t>(((count - 1) * stride + width) * (element == Element::fp32 ? 2 : 1)));
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t j = 0; j < width; ++j)
        core::store_from_float(memory.data(), type, i * stride + j,
                               static_cast<float>(swaps ? number(j, i) : number(i, j)));
    rows = {memory.data(), element, 0, stride};
  }
};

std::vector<float> packed(const Kernels& kernels, const Input& input, bool along_rows, bool of_b, std::int64_t count,
                          std::int64_t depth) {
  const std::int64_t width = of_b ? kernels.product_columns : kernels.product_rows;
  const std::int64_t steps = ((depth + kernels.product_pairs - 1) / kernels.product_pairs + 3) / 4 * 4;
  std::vector<float> panels(static_cast<std::size_t>((count + width - 1) / width * width * steps), NAN);
  kernels.pack_panels({input.rows, along_rows, of_b, count, depth, panels.data(), width * steps});
  return panels;
}

void expect_product(const Kernels& kernels, Element element, std::int64_t m, std::int64_t n, std::int64_t k,
                    int variant) {
  const bool along_a = (variant & 1) != 0, along_b = (variant & 2) != 0, adds = (variant & 4) != 0;
  const Input a = along_a ? Input(element, m, k, k + 3, false) : Input(element, k, m, m + 1, true);
  const Input b = along_b ? Input(element, n, k, k, true) : Input(element, k, n, n + 2, false);
  const std::vector<float> panels_a = packed(kernels, a, along_a, false, m, k),
                           panels_b = packed(kernels, b, along_b, true, n, k);
  const float before = adds ? 3.0f : NAN;
  const std::int64_t stride = n + 1, behind = kernels.product_rows;  // rows that stay as they are
  std::vector<float> c(static_cast<std::size_t>((m + behind) * stride), before);
  kernels.product({panels_a.data(), panels_b.data(), m, n, k, 0.5f, adds ? 1.0f : 0.0f, c.data(), stride});
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      int sum = 0;
      for (std::int64_t l = 0; l < k; ++l) sum += number(i, l) * number(l, j);
      ASSERT_EQ(c[static_cast<std::size_t>(i * stride + j)], 0.5f * static_cast<float>(sum) + (adds ? before : 0.0f))
          << m << " x " << n << " x " << k << ", variant " << variant << ", lanes " << kernels.lanes << ", at " << i
          << ", " << j;
    }
    const float beside = c[static_cast<std::size_t>(i * stride + n)];
    ASSERT_TRUE(adds ? beside == before : std::isnan(beside)) << "written beside row " << i;
  }
  for (auto at = c.begin() + m * stride; at != c.end(); ++at)
    ASSERT_TRUE(adds ? *at == before : std::isnan(*at)) << "written behind row " << m - 1;
}

TEST(Product, OfEveryInstructionSetIsRight) {
  for (const Kernels* kernels : all_kernels()) {
    for (const Element element : {Element::fp32, Element::bf16, Element::fp16}) {
      if (kernels->bf16_dot && element != Element::bf16) continue;
      for (const std::int64_t m : {1, 2, 5, 8, 12, 30})
        for (const std::int64_t n : {1, 8, 13, 32, 50, 70})
          for (const std::int64_t k : {1, 5, 16, 47})
            for (int variant = 0; variant < 8; ++variant) expect_product(*kernels, element, m, n, k, variant);
    }
  }
}

TEST(Product, TakesItsLargestDepth) {
  for (const Kernels* kernels : all_kernels())
    for (int variant = 0; variant < 4; ++variant)
      expect_product(*kernels, Element::bf16, 14, 33, kernels->product_depth, variant);
}

}  // namespace
}  // namespace fovea::cpu
