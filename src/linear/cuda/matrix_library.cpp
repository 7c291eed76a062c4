// Products as cuBLASLt takes them. Choosing an algorithm takes host time, so the choice is cached.
#include "linear/cuda/matrix_library.h"

#include <cuda_runtime_api.h>

#include <bit>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "core/check.h"
#include "core/names.h"
#include "core/never_destroyed.h"
#include "cuda/runtime/check.h"
#include "linear/cuda/cublaslt.h"
#include "linear/cuda/written_memory.h"

namespace fovea::cuda {
namespace {

using cublaslt::Descriptor;
using cublaslt::Functions;
using linear::BatchedProduct;
using linear::MatrixBatch;

constexpr std::size_t kMaxCached = 4096;

struct MatrixKind {
  DType dtype;
  bool transposed;
  std::int64_t row_stride, batch_stride;
  std::uint32_t alignment;
  auto operator<=>(const MatrixKind&) const = default;
};

// Key of the cache: everything that the choice depends on. alpha and beta are not part of it.
struct ProductKind {
  int device;
  std::int64_t count, m, n, k;
  MatrixKind a, b, c;
  bool has_bias;
  std::int64_t bias_batch_stride;
  std::uint32_t bias_alignment;
  std::int64_t workspace_bytes;
  auto operator<=>(const ProductKind&) const = default;
};

// The largest power of two that divides the address of every row of every matrix; cuBLASLt distinguishes up to 256.
std::uint32_t alignment_of(const MatrixBatch& one) {
  constexpr std::uint64_t kMost = 256;
  const auto strides = static_cast<std::uint64_t>(one.row_stride | one.batch_stride);
  const auto size = static_cast<std::uint64_t>(size_of(one.dtype));
  return std::uint32_t{1} << std::countr_zero(reinterpret_cast<std::uintptr_t>(one.data) | strides * size | kMost);
}

MatrixKind kind_of(const MatrixBatch& one) {
  return {one.dtype, one.transposed, one.row_stride, one.batch_stride, alignment_of(one)};
}

ProductKind kind_of(const BatchedProduct& p, std::int64_t workspace_bytes) {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const bool has_bias = p.bias.data != nullptr;
  return {device,
          p.count,
          p.m,
          p.n,
          p.k,
          kind_of(p.a),
          kind_of(p.b),
          kind_of(p.c),
          has_bias,
          p.bias.batch_stride,
          has_bias ? alignment_of(p.bias) : 0,
          workspace_bytes};
}

// Elements from the first result to one past the last.
std::int64_t extent_of_results(const BatchedProduct& p) {
  return (p.count - 1) * p.c.batch_stride + (p.m - 1) * p.c.row_stride + p.n;
}

std::string text_of_product(const ProductKind& p) {
  const auto name = [](const MatrixKind& matrix) { return std::string(core::name_of(matrix.dtype)); };
  return std::to_string(p.count) + " products of [" + std::to_string(p.m) + ", " + std::to_string(p.k) + "] and [" +
         std::to_string(p.k) + ", " + std::to_string(p.n) + "], " + name(p.a) + " to " + name(p.c);
}

// cuBLASLt's matrices are column-major: c^T = b^T a^T, so its left operand is b and its right operand a.
struct PreparedProduct {
  Descriptor product, left, right, result;
  cublaslt::Algorithm algorithm{};
};

// Layout of a matrix that is [rows, columns] after transposition.
Descriptor layout_of(const Functions& functions, const ProductKind& p, const MatrixKind& matrix, std::int64_t rows,
                     std::int64_t columns) {
  constexpr int kTypes[] = {cublaslt::kFp32, cublaslt::kBf16, cublaslt::kFp16};
  if (matrix.transposed) std::swap(rows, columns);
  Descriptor layout(functions, functions.layout, kTypes[static_cast<std::size_t>(matrix.dtype)],
                    static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows), matrix.row_stride);
  layout.set(cublaslt::kBatchCount, static_cast<std::int32_t>(p.count));
  layout.set(cublaslt::kBatchStride, matrix.batch_stride);
  return layout;
}

Descriptor preference_of(const Functions& functions, const ProductKind& p) {
  Descriptor preference(functions, functions.preference);
  preference.set(cublaslt::kMaxWorkspaceBytes, static_cast<std::uint64_t>(p.workspace_bytes));
  // Split-K partial sums must be added in fp32: in place only where the result is fp32.
  const std::uint32_t in_place = p.c.dtype == DType::fp32 ? cublaslt::kInPlace : 0;
  preference.set(cublaslt::kReductionSchemes, in_place | cublaslt::kInComputeType);
  preference.set(cublaslt::kMinAlignmentA, p.b.alignment);
  preference.set(cublaslt::kMinAlignmentB, p.a.alignment);
  preference.set(cublaslt::kMinAlignmentC, p.c.alignment);
  preference.set(cublaslt::kMinAlignmentD, p.c.alignment);
  return preference;
}

// cuBLASLt lists the algorithm first that it expects to be fastest.
cublaslt::Algorithm first_algorithm(const Functions& functions, void* handle, const ProductKind& p,
                                    const PreparedProduct& prepared) {
  const Descriptor preference = preference_of(functions, p);
  cublaslt::HeuristicResult result{};
  int found = 0;
  int status =
      functions.find_algorithms(handle, prepared.product.get(), prepared.left.get(), prepared.right.get(),
                                prepared.result.get(), prepared.result.get(), preference.get(), 1, &result, &found);
  if (status == 0) status = found == 0 ? cublaslt::kNotSupported : result.status;
  if (status != 0) fail(functions, status, "cublasLtMatmulAlgoGetHeuristic", text_of_product(p));
  return result.algorithm;
}

// The heuristic reads the alignment of `bias`. Every multiply() sets the pointer of its own call.
PreparedProduct prepare(const Functions& functions, void* handle, const ProductKind& p, const void* bias) {
  PreparedProduct prepared{.product = {functions, functions.product, cublaslt::kComputeFp32, cublaslt::kFp32},
                           .left = layout_of(functions, p, p.b, p.k, p.n),
                           .right = layout_of(functions, p, p.a, p.m, p.k),
                           .result = layout_of(functions, p, p.c, p.m, p.n)};
  prepared.product.set(cublaslt::kTransposeA, p.b.transposed);
  prepared.product.set(cublaslt::kTransposeB, p.a.transposed);
  if (p.has_bias) {  // one element per column of c, which is a row to cuBLASLt
    prepared.product.set(cublaslt::kEpilogue, cublaslt::kAddBias);
    prepared.product.set(cublaslt::kBiasBatchStride, p.bias_batch_stride);
    prepared.product.set(cublaslt::kBiasPointer, bias);
  }
  prepared.algorithm = first_algorithm(functions, handle, p, prepared);
  return prepared;
}

class MatrixLibrary {
 public:
  const std::string& missing() const { return functions_.missing; }

  void multiply(const BatchedProduct& p, void* stream, const Buffer& workspace) {
    const ProductKind kind = kind_of(p, workspace.data == nullptr ? 0 : workspace.bytes);
    const std::lock_guard lock(mutex_);  // held to the end: another thread may clear the cache
    void* const handle = handle_of(kind.device);
    PreparedProduct& prepared = cached(handle, kind, p.bias.data);
    if (kind.has_bias) prepared.product.set(cublaslt::kBiasPointer, p.bias.data);
    const int status = functions_.multiply(handle, prepared.product.get(), &p.alpha, p.b.data, prepared.left.get(),
                                           p.a.data, prepared.right.get(), &p.beta, p.c.data, prepared.result.get(),
                                           linear::target_of(p.c), prepared.result.get(), &prepared.algorithm,
                                           workspace.data, static_cast<std::size_t>(kind.workspace_bytes), stream);
    if (status != 0) fail(functions_, status, "cublasLtMatmul", text_of_product(kind));
    mark_written(p.c.data, extent_of_results(p) * size_of(p.c.dtype), stream);
  }

 private:
  void* handle_of(int device) {
    void*& handle = handles_[device];
    if (handle != nullptr) return handle;
    void* made = nullptr;
    if (const int status = functions_.create(&made)) fail(functions_, status, "cublasLtCreate");
    return handle = made;
  }

  PreparedProduct& cached(void* handle, const ProductKind& kind, const void* bias) {
    if (const auto known = products_.find(kind); known != products_.end()) return known->second;
    PreparedProduct prepared = prepare(functions_, handle, kind, bias);
    if (products_.size() == kMaxCached) products_.clear();
    return products_.emplace(kind, std::move(prepared)).first->second;
  }

  const Functions functions_ = cublaslt::load();
  std::mutex mutex_;
  std::map<int, void*> handles_;
  std::map<ProductKind, PreparedProduct> products_;
};

MatrixLibrary& library() {
  static auto& one = core::never_destroyed<MatrixLibrary>();
  return one;
}

}  // namespace

const std::string& missing_matrix_library() { return library().missing(); }

void multiply(const linear::BatchedProduct& product, void* stream, const Buffer& workspace) {
  if (!missing_matrix_library().empty())
    core::fail({.status = Status::unsupported, .problem = missing_matrix_library()});
  library().multiply(product, stream, workspace);
}

}  // namespace fovea::cuda
