// Which library: measured on attention's shapes, oneDNN's sgemm is the faster one except where the first factor is
// transposed, where OpenBLAS is up to twice as fast (docs/kernels/baselines.md). bf16 goes to oneDNN as it is where the
// processor multiplies it; otherwise 16-bit factors are widened, a piece that stays in the cache at a time.
#include "baselines/products.h"

#include <cblas.h>
#include <dnnl.h>

#include <algorithm>
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

void multiply_fp32(const Product& product) { (product.a.transposed ? openblas : onednn)(product); }

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

}  // namespace

void multiply(const Product& p) {
  static const bool bf16 = has_bf16_products();
  const auto both = [&p](DType type) { return p.a.dtype == type && p.b.dtype == type; };
  if (both(DType::fp32)) return multiply_fp32(p);
  if (bf16 && both(DType::bf16)) return multiply_by_primitive(p);
  multiply_widened(p);
}

}  // namespace fovea::baselines
