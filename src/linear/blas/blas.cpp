// Which library: oneDNN's sgemm is faster, except for small products with a transposed first operand, where either may
// be twice as fast as the other (docs/kernels/baselines.md). bf16 goes to oneDNN if the processor multiplies bf16;
// otherwise 16-bit operands are widened, one piece at a time that stays in the cache.
#include "linear/blas/blas.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/check.h"
#include "core/float16.h"
#include "core/memory.h"
#include "core/never_destroyed.h"
#include "linear/blas/faster_library.h"
#include "linear/blas/matmul_primitive.h"
#include "linear/blas/openblas.h"
#include "linear/host_kernels.h"

namespace fovea::linear::blas {
namespace {

// The parts of K and of the columns that are widened at a time.
constexpr std::int64_t kDepth = 512, kColumns = 512;

void openblas(const BatchedProduct& p) {
  const auto size = [](std::int64_t value) { return static_cast<blasint>(value); };
  const auto order = [](const MatrixBatch& m) { return m.transposed ? CblasTrans : CblasNoTrans; };
  openblas_library().sgemm(CblasRowMajor, order(p.a), order(p.b), size(p.m), size(p.n), size(p.k), p.alpha,
                           static_cast<const float*>(p.a.data), size(p.a.row_stride),
                           static_cast<const float*>(p.b.data), size(p.b.row_stride), p.beta,
                           static_cast<float*>(target_of(p.c)), size(p.c.row_stride));
}

void onednn(const BatchedProduct& p) { multiply_by_sgemm(p); }

void multiply_fastest_fp32(const BatchedProduct& product) {
  static auto& transposed = core::never_destroyed<FasterLibrary>(openblas, onednn, time_product);
  (product.a.transposed ? transposed.for_shape_of(product) : onednn)(product);
}

// One shift for each element. The engine's conversion, which can also scale and add, takes five times as long.
void widen_bf16(const MatrixBatch& from, std::int64_t rows, std::int64_t columns, float* to) {
  for (std::int64_t row = 0; row < rows; ++row, to += columns) {
    const auto* elements = static_cast<const std::uint16_t*>(from.data) + row * from.row_stride;
    for (std::int64_t i = 0; i < columns; ++i) to[i] = core::bf16_to_float(elements[i]);
  }
}

void widen_fp16(const MatrixBatch& from, std::int64_t rows, std::int64_t columns, float* to) {
  host_kernels(DType::fp32)
      .convert({{from.data, cpu::Element::fp16, 0, from.row_stride},
                {to, cpu::Element::fp32, 0, columns},
                {nullptr, cpu::Element::fp32, 0, 0},
                rows,
                columns,
                1.0f,
                0.0f});
}

// The piece [row, row + rows) x [column, column + columns) of an operand as fp32; 16-bit elements are widened into
// `memory`.
MatrixBatch widened(const MatrixBatch& whole, std::int64_t row, std::int64_t column, std::int64_t rows,
                    std::int64_t columns, float* memory) {
  const MatrixBatch piece = whole.within(row, column);
  if (piece.dtype == DType::fp32) return piece;
  if (piece.transposed) std::swap(rows, columns);
  (piece.dtype == DType::bf16 ? widen_bf16 : widen_fp16)(piece, rows, columns, memory);
  return {memory, DType::fp32, columns, 0, piece.transposed};
}

void multiply_widened(const BatchedProduct& p, void (*multiply)(const BatchedProduct&)) {
  const std::int64_t floats_of_a = p.m * std::min(p.k, kDepth);
  const core::WorkspaceLease lease((floats_of_a + std::min(p.k, kDepth) * std::min(p.n, kColumns)) * 4, "product");
  float* const wide_a = static_cast<float*>(lease.data());
  for (std::int64_t k = 0; k < p.k; k += kDepth) {
    BatchedProduct part = p;
    part.k = std::min(kDepth, p.k - k);
    part.a = widened(p.a, 0, k, p.m, part.k, wide_a);
    if (k > 0) part.beta = 1.0f;
    for (std::int64_t n = 0; n < p.n; n += kColumns) {
      part.n = std::min(kColumns, p.n - n);
      part.b = widened(p.b, k, n, part.k, part.n, wide_a + floats_of_a);
      part.c = p.c.from(0, n);
      multiply(part);
    }
  }
}

// An operand whose rows in memory lie one after another, copied to `memory`.
MatrixBatch copied(const MatrixBatch& from, std::int64_t rows, std::int64_t columns, std::uint16_t* memory) {
  if (from.transposed) std::swap(rows, columns);
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(static_cast<const std::uint16_t*>(from.from(row, 0).data), columns, memory + row * columns);
  return {memory, DType::bf16, columns, 0, from.transposed};
}

// oneDNN multiplies dense matrices twice as fast on AMX as others. So operands are copied if the product has enough
// rows or columns to repay that (docs/kernels/linear_notebook.md).
void multiply_dense(BatchedProduct p) {
  constexpr std::int64_t kEnough = 256;
  const auto is_dense = [](const MatrixBatch& x, std::int64_t rows, std::int64_t columns) {
    return x.row_stride == (x.transposed ? rows : columns);
  };
  const bool copies_a = !is_dense(p.a, p.m, p.k), copies_b = !is_dense(p.b, p.k, p.n);
  const bool repays = (!copies_a || p.n >= kEnough) && (!copies_b || p.m >= kEnough);
  if (!has_amx_products() || !repays || !is_dense(p.c, p.m, p.n)) return multiply_by_primitive(p);
  const std::int64_t size_of_a = copies_a ? p.m * p.k : 0, size_of_b = copies_b ? p.k * p.n : 0;
  const core::WorkspaceLease lease((size_of_a + size_of_b) * size_of(DType::bf16), "product");
  auto* const memory = static_cast<std::uint16_t*>(lease.data());
  if (copies_a) p.a = copied(p.a, p.m, p.k, memory);
  if (copies_b) p.b = copied(p.b, p.k, p.n, memory + size_of_a);
  multiply_by_primitive(p);
}

// The primitive multiplies the largest multiple of kBf16Depth along K; the rest of K is widened.
void multiply_bf16(const BatchedProduct& p) {
  const std::int64_t whole = p.k - p.k % kBf16Depth, rest = p.k - whole;
  BatchedProduct part = p;
  if (whole > 0) {
    part.k = whole;
    multiply_dense(part);
    part.beta = 1.0f;
  }
  if (rest == 0) return;
  part.k = rest;
  part.a = p.a.within(0, whole);
  part.b = p.b.within(whole, 0);
  multiply_widened(part, onednn);
}

// Whether c was filled here: with alpha = beta = 0, oneDNN's AVX-512 code leaves c as it was.
bool fills_zero(const BatchedProduct& p) {
  if (p.alpha != 0.0f || p.beta != 0.0f) return false;
  for (std::int64_t i = 0; i < p.m; ++i)
    std::fill_n(static_cast<float*>(target_of(p.c)) + i * p.c.row_stride, p.n, 0.0f);
  return true;
}

std::string onednn_refusal(DType operands) {
  if (operands == DType::fp16) return "has no fp16 product on CPUs";
  if (operands == DType::bf16 && !has_bf16_products()) return "has no bf16 product on this processor";
  return {};
}

// By measurement (docs/kernels/linear_notebook.md): for fewer rows, packing the weight takes longer than reading it.
std::string leaves_many_rows(const LinearProblem& p) {
  constexpr std::int64_t kManyRows = 32;
  constexpr int kAvx2Lanes = 8;
  const bool own_is_faster =
      p.dtype == DType::fp32 && p.rows() >= kManyRows && host_kernels(DType::fp32).lanes >= kAvx2Lanes;
  return own_is_faster ? "slower in fp32 than the engine's own kernels from " + std::to_string(kManyRows) + " rows on"
                       : "";
}

std::string openblas_refusal(DType operands) { return operands == DType::fp32 ? "" : "multiplies fp32 only"; }

// By measurement (docs/kernels/linear_notebook.md). oneDNN's best bf16 code takes dense results only: whole rows.
TileSize onednn_tile(DType operands) {
  return operands == DType::bf16 ? TileSize{1024, 8192, true} : TileSize{2048, 2048};
}
TileSize openblas_tile(DType) { return {512, 1024}; }

std::int64_t no_scratch(const BatchedProduct&) { return 0; }

bool rounds_bf16(const BatchedProduct& p) { return p.c.dtype == DType::bf16 && p.k % kBf16Depth == 0; }
bool rounds_nothing(const BatchedProduct&) { return false; }

// sgemm is faster than the primitive in fp32 (docs/kernels/linear_notebook.md).
void multiply_onednn(const BatchedProduct& p, void*) {
  if (p.c.dtype == DType::fp32 && fills_zero(p)) return;
  p.a.dtype == DType::bf16 ? multiply_bf16(p) : multiply_by_sgemm(p);
}

void multiply_openblas(const BatchedProduct& p, void*) {
  if (!fills_zero(p)) openblas(p);
}

}  // namespace

std::string unavailable() { return {}; }

// In fp32 they run for few rows only (docs/kernels/linear_notebook.md). Without AVX-512, oneDNN multiplies small tiles
// with a transposed first operand at half the rate.
std::span<const HostLibrary> libraries() {
  static const HostLibrary all[] = {
      {.name = "cpu.onednn",
       .title = "oneDNN",
       .named_because = has_avx512() ? "" : "slower than OpenBLAS on processors without AVX-512",
       .leaves = leaves_many_rows,
       .refusal = onednn_refusal,
       .largest_tile = onednn_tile,
       .scratch_bytes = no_scratch,
       .rounds = rounds_bf16,
       .multiply = multiply_onednn},
      {.name = "cpu.openblas",
       .title = "OpenBLAS",
       .named_because = has_avx512() ? "slower than oneDNN on processors with AVX-512" : "",
       .leaves = leaves_many_rows,
       .refusal = openblas_refusal,
       .largest_tile = openblas_tile,
       .scratch_bytes = no_scratch,
       .rounds = rounds_nothing,
       .multiply = multiply_openblas}};
  return all;
}

void multiply_by_openblas(const BatchedProduct& p, int threads) {
  openblas_library().set_num_threads(threads);
  openblas(p);
  openblas_library().set_num_threads(1);
}

void multiply_fastest(const BatchedProduct& p) {
  if (fills_zero(p)) return;
  static const bool bf16 = has_bf16_products();
  const auto both = [&p](DType type) { return p.a.dtype == type && p.b.dtype == type; };
  if (both(DType::fp32)) return multiply_fastest_fp32(p);
  if (bf16 && both(DType::bf16)) return multiply_bf16(p);
  multiply_widened(p, multiply_fastest_fp32);
}

}  // namespace fovea::linear::blas
