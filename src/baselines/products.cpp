// Which library: measured on attention's shapes, oneDNN's sgemm is the faster one except where the first factor is
// transposed; there either may be twice as fast as the other (docs/kernels/baselines.md). bf16 goes to oneDNN as it is
// where the processor multiplies it; otherwise 16-bit factors are widened, a piece that stays in the cache at a time.
#include "baselines/products.h"

#include <cblas.h>
#include <dnnl.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "baselines/conversions.h"
#include "baselines/matmul_primitive.h"
#include "core/check.h"

namespace fovea::baselines {
namespace {

void openblas(const Product& p) {
  [[maybe_unused]] static const bool one_thread = (openblas_set_num_threads(1), true);
  const auto size = [](std::int64_t value) { return static_cast<blasint>(value); };
  const auto order = [](const Factor& factor) { return factor.transposed ? CblasTrans : CblasNoTrans; };
  cblas_sgemm(CblasRowMajor, order(p.a), order(p.b), size(p.m), size(p.n), size(p.k), p.alpha,
              static_cast<const float*>(p.a.data), size(p.a.stride), static_cast<const float*>(p.b.data),
              size(p.b.stride), p.beta, p.c, size(p.c_stride));
}

void onednn(const Product& p) {
  const OneThread one_thread;
  const dnnl_status_t status = dnnl_sgemm(p.a.transposed ? 'T' : 'N', p.b.transposed ? 'T' : 'N', p.m, p.n, p.k,
                                          p.alpha, static_cast<const float*>(p.a.data), p.a.stride,
                                          static_cast<const float*>(p.b.data), p.b.stride, p.beta, p.c, p.c_stride);
  if (status != dnnl_success)
    core::fail({.problem = "oneDNN's sgemm failed", .got = "status " + std::to_string(static_cast<int>(status))});
}

// Shortest of a few runs of a gradient's product, in seconds.
double time_transposed(void (*library)(const Product&)) {
  constexpr std::int64_t kKeys = 256, kDim = 64, kQueries = 512;
  const std::vector<float> weights(kQueries * kKeys, 0.5f), rows(kQueries * kDim, 0.5f);
  std::vector<float> sums(kKeys * kDim);
  const Product product{.m = kKeys,
                        .n = kDim,
                        .k = kQueries,
                        .alpha = 1.0f,
                        .a = {weights.data(), DType::fp32, kKeys, true},
                        .b = {rows.data(), DType::fp32, kDim, false},
                        .beta = 0.0f,
                        .c = sums.data(),
                        .c_stride = kDim};
  double shortest = 1;
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    library(product);
    shortest = std::min(shortest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return shortest;
}

void multiply_fp32(const Product& product) {
  static const auto transposed = time_transposed(openblas) < time_transposed(onednn) ? openblas : onednn;
  (product.a.transposed ? transposed : onednn)(product);
}

// The piece [row, row + rows) x [column, column + columns) of what the product takes, as fp32.
Factor widened(const Factor& factor, std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns,
               std::vector<float>& memory) {
  if (factor.transposed) std::swap(row, column), std::swap(rows, columns);
  const Factor piece = factor.from(row, column);
  if (piece.dtype == DType::fp32) return piece;
  memory.resize(static_cast<std::size_t>(std::max<std::int64_t>(rows * columns, std::ssize(memory))));
  for (std::int64_t i = 0; i < rows; ++i)
    widen_row(memory.data() + i * columns, piece.dtype, piece.data, i * piece.stride, columns);
  return {memory.data(), DType::fp32, columns, piece.transposed};
}

void multiply_widened(const Product& p) {
  constexpr std::int64_t kDepth = 512, kColumns = 512;
  thread_local std::vector<float> wide_a, wide_b;
  for (std::int64_t k = 0; k < p.k; k += kDepth) {
    const std::int64_t depth = std::min(kDepth, p.k - k);
    const Factor a = widened(p.a, 0, k, p.m, depth, wide_a);
    for (std::int64_t n = 0; n < p.n; n += kColumns) {
      const std::int64_t columns = std::min(kColumns, p.n - n);
      const Factor b = widened(p.b, k, n, depth, columns, wide_b);
      multiply_fp32({p.m, columns, depth, p.alpha, a, b, k == 0 ? p.beta : 1.0f, p.c + n, p.c_stride});
    }
  }
}

// The end of the length that the primitive does not take goes the other way.
void multiply_bf16(const Product& p) {
  const std::int64_t whole = p.k - p.k % kBf16Depth, rest = p.k - whole;
  Product part = p;
  if (whole > 0) {
    part.k = whole;
    multiply_by_primitive(part);
    part.beta = 1.0f;
  }
  if (rest == 0) return;
  part.k = rest;
  part.a = p.a.transposed ? p.a.from(whole, 0) : p.a.from(0, whole);
  part.b = p.b.transposed ? p.b.from(0, whole) : p.b.from(whole, 0);
  multiply_widened(part);
}

}  // namespace

std::string products_unavailable() { return {}; }

void multiply(const Product& p) {
  // Asked for nothing, oneDNN's AVX-512 code leaves c as it was.
  if (p.alpha == 0.0f && p.beta == 0.0f) {
    for (std::int64_t i = 0; i < p.m; ++i) std::fill_n(p.c + i * p.c_stride, p.n, 0.0f);
    return;
  }
  static const bool bf16 = has_bf16_products();
  const auto both = [&p](DType type) { return p.a.dtype == type && p.b.dtype == type; };
  if (both(DType::fp32)) return multiply_fp32(p);
  if (bf16 && both(DType::bf16)) return multiply_bf16(p);
  multiply_widened(p);
}

}  // namespace fovea::baselines
