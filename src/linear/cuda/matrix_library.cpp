// Products as cuBLASLt takes them. Describing one and choosing its algorithm takes host time, so both are kept: a
// product is planned once, and its plan shared by all threads.
#include "linear/cuda/matrix_library.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/check.h"
#include "core/hash.h"
#include "core/names.h"
#include "core/never_destroyed.h"
#include "core/plan_cache.h"
#include "cuda/runtime/check.h"
#include "linear/cuda/cublaslt.h"
#include "linear/cuda/written_memory.h"

namespace fovea::cuda {
namespace {

using cublaslt::Descriptor;
using cublaslt::Functions;
using linear::BatchedProduct;
using linear::MatrixBatch;

constexpr std::size_t kKeptProducts = 512;  // a baseline's call may have a hundred

struct MatrixKind {
  DType dtype;
  bool transposed;
  std::int64_t row_stride, batch_stride;
  std::uint32_t alignment;
  bool operator==(const MatrixKind&) const = default;
};

// Everything that a product's plan depends on. alpha and beta are not part of it.
struct ProductKind {
  int device;
  std::int64_t count, m, n, k;
  MatrixKind a, b, c;
  bool has_bias;
  std::int64_t bias_batch_stride;
  std::uint32_t bias_alignment;
  std::int64_t workspace_bytes;
  bool operator==(const ProductKind&) const = default;
};

std::size_t hash_of(const MatrixKind& m) {
  return core::hash_of(m.dtype, m.transposed, m.row_stride, m.batch_stride, m.alignment);
}

std::size_t hash_of(const ProductKind& p) {
  return core::hash_of(p.device, p.count, p.m, p.n, p.k, hash_of(p.a), hash_of(p.b), hash_of(p.c), p.has_bias,
                       p.bias_batch_stride, p.bias_alignment, p.workspace_bytes);
}

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
struct ProductPlan {
  ProductKind kind;
  void* handle;  // of the device
  Descriptor product, left, right, result;
  cublaslt::Algorithm algorithm{};

  template <class Request>
  bool answers(const Request& request) const {
    return kind == request.kind;
  }
};
using ProductPlans = core::PlanCache<ProductPlan, kKeptProducts>;

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

// Split-K partial sums must be added in fp32: in place only where the result is fp32.
std::uint32_t fp32_reductions(const ProductKind& p) {
  return cublaslt::kInComputeType | (p.c.dtype == DType::fp32 ? cublaslt::kInPlace : 0);
}

Descriptor preference_of(const Functions& functions, const ProductKind& p, std::uint32_t reduction_schemes) {
  Descriptor preference(functions, functions.preference);
  preference.set(cublaslt::kMaxWorkspaceBytes, static_cast<std::uint64_t>(p.workspace_bytes));
  preference.set(cublaslt::kReductionSchemes, reduction_schemes);
  preference.set(cublaslt::kMinAlignmentA, p.b.alignment);
  preference.set(cublaslt::kMinAlignmentB, p.a.alignment);
  preference.set(cublaslt::kMinAlignmentC, p.c.alignment);
  preference.set(cublaslt::kMinAlignmentD, p.c.alignment);
  return preference;
}

// cuBLASLt lists the algorithm first that it expects to be fastest.
cublaslt::Algorithm first_algorithm(const Functions& functions, const ProductPlan& plan,
                                    std::uint32_t reduction_schemes) {
  const Descriptor preference = preference_of(functions, plan.kind, reduction_schemes);
  cublaslt::HeuristicResult result{};
  int found = 0;
  int status = functions.find_algorithms(plan.handle, plan.product.get(), plan.left.get(), plan.right.get(),
                                         plan.result.get(), plan.result.get(), preference.get(), 1, &result, &found);
  if (status == 0) status = found == 0 ? cublaslt::kNotSupported : result.status;
  if (status != 0) fail(functions, status, "cublasLtMatmulAlgoGetHeuristic", text_of_product(plan.kind));
  return result.algorithm;
}

// Split-K algorithms of cuBLASLt 13 lose the last k % splits terms where k / splits, rounded down, is a multiple of
// their K tile: k = 16,129 in 12 splits lost one. Every K tile is a multiple of 16.
bool may_lose_terms(std::int64_t k, std::int64_t splits) { return k % splits != 0 && k / splits % 16 == 0; }

cublaslt::Algorithm choose_algorithm(const Functions& functions, const ProductPlan& plan) {
  const cublaslt::Algorithm first = first_algorithm(functions, plan, fp32_reductions(plan.kind));
  std::uint32_t splits = 1;
  std::size_t written = 0;
  const int status = functions.read_algorithm(&first, cublaslt::kSplits.number, &splits, sizeof(splits), &written);
  if (status != 0) fail(functions, status, "cublasLtMatmulAlgoConfigGetAttribute", text_of_product(plan.kind));
  if (!may_lose_terms(plan.kind.k, std::max<std::int64_t>(splits, 1))) return first;
  return first_algorithm(functions, plan, cublaslt::kNoReduction);
}

// What is multiplied how. With a bias it holds the bias's address, which the heuristic reads for its alignment.
Descriptor product_of(const Functions& functions, const ProductKind& p, const void* bias) {
  Descriptor product(functions, functions.product, cublaslt::kComputeFp32, cublaslt::kFp32);
  product.set(cublaslt::kTransposeA, p.b.transposed);
  product.set(cublaslt::kTransposeB, p.a.transposed);
  if (p.has_bias) {  // one element per column of c, which is a row to cuBLASLt
    product.set(cublaslt::kEpilogue, cublaslt::kAddBias);
    product.set(cublaslt::kBiasBatchStride, p.bias_batch_stride);
    product.set(cublaslt::kBiasPointer, bias);
  }
  return product;
}

class MatrixLibrary {
 public:
  const std::string& missing() const { return functions_.missing; }

  // Plans never change, and cuBLASLt may be called from any thread with one handle: no call waits for another's.
  void multiply(const BatchedProduct& p, void* stream, const Buffer& workspace) {
    const ProductKind kind = kind_of(p, workspace.data == nullptr ? 0 : workspace.bytes);
    const ProductPlans::Held plan = plan_of(kind, p.bias.data);
    if (!kind.has_bias) return multiply(p, *plan, plan->product.get(), stream, workspace);
    const Descriptor with_bias = product_of(functions_, kind, p.bias.data);  // of this call
    multiply(p, *plan, with_bias.get(), stream, workspace);
  }

 private:
  void multiply(const BatchedProduct& p, const ProductPlan& plan, void* product, void* stream,
                const Buffer& workspace) const {
    const int status = functions_.multiply(plan.handle, product, &p.alpha, p.b.data, plan.left.get(), p.a.data,
                                           plan.right.get(), &p.beta, p.c.data, plan.result.get(),
                                           linear::target_of(p.c), plan.result.get(), &plan.algorithm, workspace.data,
                                           static_cast<std::size_t>(plan.kind.workspace_bytes), stream);
    if (status != 0) fail(functions_, status, "cublasLtMatmul", text_of_product(plan.kind));
    mark_written(p.c.data, extent_of_results(p) * size_of(p.c.dtype), stream);
  }

  ProductPlans::Held plan_of(const ProductKind& kind, const void* bias) {
    const struct {
      const ProductKind& kind;
      std::size_t hash;
    } request{kind, hash_of(kind)};
    return ProductPlans::instance().find(request, [&] { return make(kind, bias); });
  }

  std::shared_ptr<const ProductPlan> make(const ProductKind& p, const void* bias) {
    auto plan = std::make_shared<ProductPlan>(ProductPlan{.kind = p,
                                                          .handle = handle_of(p.device),
                                                          .product = product_of(functions_, p, bias),
                                                          .left = layout_of(functions_, p, p.b, p.k, p.n),
                                                          .right = layout_of(functions_, p, p.a, p.m, p.k),
                                                          .result = layout_of(functions_, p, p.c, p.m, p.n)});
    plan->algorithm = choose_algorithm(functions_, *plan);
    return plan;
  }

  void* handle_of(int device) {
    const std::lock_guard lock(mutex_);
    void*& handle = handles_[device];
    if (handle != nullptr) return handle;
    void* made = nullptr;
    if (const int status = functions_.create(&made)) fail(functions_, status, "cublasLtCreate");
    return handle = made;
  }

  const Functions functions_ = cublaslt::load();
  std::mutex mutex_;  // of the handles; taken for a new product only
  std::map<int, void*> handles_;
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
