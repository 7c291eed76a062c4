// Every road of a matrix product on the CPU gives the product: the engine's own, libraries in fp32, widened 16-bit
// pieces, oneDNN's primitive.
#include "linear/blas/blas.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/float16.h"
#include "core/memory.h"
#include "core/never_destroyed.h"
#include "fovea/error.h"
#include "linear/blas/faster_library.h"
#include "linear/blas/matmul_primitive.h"
#include "linear/blas/openblas.h"
#include "linear/packed_product.h"

namespace fovea::linear {
namespace {

// Random numbers of a type in rows of a stride, and their exact values.
struct Matrix {
  MatrixBatch view{};
  std::vector<float> memory, values;

  Matrix(std::int64_t rows, std::int64_t columns, std::int64_t padding, DType dtype, bool transposed, unsigned seed) {
    if (transposed) std::swap(rows, columns);
    const std::int64_t stride = columns + padding, count = rows * stride;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    values.resize(static_cast<std::size_t>(count));
    memory.resize(values.size());
    for (std::int64_t i = 0; i < count; ++i) {
      core::store_from_float(memory.data(), dtype, i, normal(random));
      values[static_cast<std::size_t>(i)] = core::load_as_float(memory.data(), dtype, i);
    }
    view = {memory.data(), dtype, stride, 0, transposed};
  }

  double at(std::int64_t row, std::int64_t column) const {
    if (view.transposed) std::swap(row, column);
    return values[static_cast<std::size_t>(row * view.row_stride + column)];
  }
};

struct Sizes {
  std::int64_t m, n, k;
};
// Attention's shapes: scores, outputs, gradients of keys; then sizes of 1, odd ones, and more than one widened piece.
constexpr Sizes kSizes[] = {{256, 300, 64}, {256, 64, 1100}, {37, 128, 515}, {1, 1, 1},   {1, 9, 1},    {33, 1, 70},
                            {3, 600, 5},    {2, 7, 513},     {71, 71, 63},   {1, 80, 63}, {63, 80, 95}, {71, 63, 71}};

// The error of an fp32 sum of k products is at most k / 2^24 of the sum of their sizes, in any order.
using Multiply = std::function<void(const BatchedProduct&)>;

void expect_product(const Multiply& multiply_so, DType dtype, const Sizes& sizes, int variant,
                    bool result_is_dense = false) {
  const bool a_transposed = (variant & 1) != 0, b_transposed = (variant & 2) != 0;
  const std::int64_t padding = (variant & 4) != 0 ? 5 : 0;
  const float alpha = (variant & 8) != 0 ? 0.25f : 1.0f, beta = (variant & 16) != 0 ? 1.0f : 0.0f;
  const auto [m, n, k] = sizes;
  const Matrix a(m, k, padding, dtype, a_transposed, 1), b(k, n, padding, dtype, b_transposed, 2);
  const std::int64_t stride = n + (result_is_dense ? 0 : padding);
  const float before = beta == 0.0f ? NAN : 0.5f;
  std::vector<float> c(static_cast<std::size_t>(m * stride), before);
  multiply_so({1, m, n, k, alpha, a.view, b.view, beta, {c.data(), DType::fp32, stride}});
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

void expect_products(const Multiply& multiply_so, DType dtype) {
  for (const Sizes& sizes : kSizes)
    for (int variant = 0; variant < 32; ++variant) expect_product(multiply_so, dtype, sizes, variant);
}

TEST(Products, AreRightForEveryType) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) expect_products(blas::multiply_fastest, dtype);
}

// On AMX, such operands are copied.
TEST(Products, AreRightForStridedOperandsAndADenseResult) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16})
    for (int variant = 0; variant < 32; ++variant)
      expect_product(blas::multiply_fastest, dtype, kSizes[0], variant, true);
}

// A library with its scratch memory.
Multiply with_scratch(const HostLibrary& library) {
  return [library](const BatchedProduct& p) {
    const core::WorkspaceLease scratch(library.scratch_bytes(p), "test");
    library.multiply(p, scratch.data());
  };
}

TEST(Products, EveryLibraryIsRightForTheTypesItTakes) {
  for (const HostLibrary& library : blas::libraries()) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16})
      if (library.refusal(dtype).empty()) expect_products(with_scratch(library), dtype);
  }
}

void multiply_by_own_kernels(const BatchedProduct& p) {
  const PackedLayout layout({p.m, p.n, p.k, p.a.dtype, p.c.dtype});
  const PackedRoom room = packed_room(layout);
  const core::WorkspaceLease workspace(room.bytes(), "test");
  multiply_packed(p, layout, room, workspace.data(), {});
}

TEST(Products, TheOwnKernelsAreRightForEveryType) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) expect_products(multiply_by_own_kernels, dtype);
}

void multiply_by_primitive_alone(const BatchedProduct& p) { blas::multiply_by_primitive(p); }

TEST(Products, ThePrimitiveIsRightInFp32) { expect_products(multiply_by_primitive_alone, DType::fp32); }

TEST(Products, ThePrimitiveIsRightInBf16) {
  if (!blas::has_bf16_products()) GTEST_SKIP() << "this processor does not multiply bf16 pairs";
  for (Sizes sizes : kSizes) {
    sizes.k = (sizes.k + 31) / 32 * 32;
    for (int variant = 0; variant < 32; ++variant)
      expect_product(multiply_by_primitive_alone, DType::bf16, sizes, variant);
  }
}

int times_taken = 0;
void any_library(const BatchedProduct&) {}
void library_for_small_products(const BatchedProduct&) {}

double pretended_time(blas::Multiply library, const BatchedProduct& p) {
  ++times_taken;
  return library == library_for_small_products ? 1e-6 * static_cast<double>(p.a.row_stride) : 1e-3;
}

TEST(Products, TheFasterLibraryIsFoundForEachShape) {
  times_taken = 0;
  auto& faster = core::never_destroyed<blas::FasterLibrary>(any_library, library_for_small_products, pretended_time);
  const auto found = [&](std::int64_t stride) {
    return faster.for_shape_of({.m = 256, .n = 64, .k = 512, .a = {nullptr, DType::fp32, stride, 0, true}});
  };
  EXPECT_EQ(found(256), library_for_small_products);
  EXPECT_EQ(found(4096), any_library);
  const int before = times_taken;
  EXPECT_EQ(found(256), library_for_small_products);
  EXPECT_EQ(times_taken, before) << "a known shape is not timed again";
}

std::atomic<bool> one_is_timing{false}, may_end{false};

// Shapes of one row take until they may end.
double time_that_waits(blas::Multiply library, const BatchedProduct& p) {
  if (p.m == 1) one_is_timing = true;
  while (p.m == 1 && !may_end) std::this_thread::yield();
  return pretended_time(library, p);
}

TEST(Products, AChildForkedWhileAThreadTimesLibrariesTimesItsOwn) {
  auto& faster = core::never_destroyed<blas::FasterLibrary>(any_library, library_for_small_products, time_that_waits);
  const auto found = [&](std::int64_t m) {
    return faster.for_shape_of({.m = m, .n = 64, .k = 512, .a = {nullptr, DType::fp32, 256, 0, true}});
  };
  std::thread other([&] { EXPECT_EQ(found(1), library_for_small_products); });
  while (!one_is_timing) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a child that waits for the thread that it lacks would wait for ever
    may_end = true;
    _exit(found(2) == library_for_small_products && found(1) == library_for_small_products ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  may_end = true;
  other.join();
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Sanitizers need more address space than this.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Products, AnOpenBlasThatFindsNoMemoryIsNotCalledMissing) {
  std::ifstream maps("/proc/self/maps");
  const std::string mapped(std::istreambuf_iterator<char>(maps), {});
  if (mapped.find("openblas") != std::string::npos) GTEST_SKIP() << "another test has loaded it";
  const pid_t child = fork();
  if (child == 0) {
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto limit = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (4 << 20));
    const rlimit little{limit, limit};
    setrlimit(RLIMIT_AS, &little);
    try {
      blas::openblas_library();
    } catch (const Error& error) {
      _exit(error.status() == Status::out_of_memory ? 0 : 1);
    }
    _exit(2);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

TEST(Products, TakeFactorsOfTwoTypes) {
  const Matrix a(20, 30, 0, DType::bf16, false, 1), b(30, 10, 0, DType::fp32, false, 2);
  std::vector<float> c(200);
  blas::multiply_fastest({1, 20, 10, 30, 1.0f, a.view, b.view, 0.0f, {c.data(), DType::fp32, 10}});
  double sum = 0, size = 0;
  for (std::int64_t l = 0; l < 30; ++l) {
    sum += a.at(19, l) * b.at(l, 9);
    size += std::abs(a.at(19, l) * b.at(l, 9));
  }
  EXPECT_NEAR(c[199], sum, 30 * 0x1p-24 * size);  // each term is rounded as product and in 29 sums at most
}

}  // namespace
}  // namespace fovea::linear
