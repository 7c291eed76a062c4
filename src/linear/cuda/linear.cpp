// Enqueues Linear's steps on a stream. cuBLASLt or a kernel of passes.cu multiplies; passes.cu does the rest. The host
// waits for nothing. While a stream is captured, the caller must provide the workspace.
#include "linear/cuda/linear.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/placement.h"
#include "cuda/runtime/tensor_refs.h"
#include "cuda/runtime/workspace_pool.h"
#include "linear/cuda/matrix_library.h"
#include "linear/cuda/passes.h"
#include "linear/steps.h"

namespace fovea::linear {
namespace {

constexpr std::int64_t kMaxGrid = 0x7fffffff;  // thread blocks
constexpr std::int64_t kAlignment = 256;

std::int64_t divide_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step; }
std::int64_t aligned(std::int64_t bytes) { return divide_up(bytes, kAlignment) * kAlignment; }

using cuda::kind_of;
using cuda::ref;

ConstTensorRef ref(const MatrixBatch& m) { return {m.data, 0, 0, m.row_stride, kind_of(m.dtype)}; }
TensorRef result_ref(const MatrixBatch& m) { return {target_of(m), 0, 0, m.row_stride, kind_of(m.dtype)}; }

template <class Parameters>
void enqueue(const void* kernel, std::int64_t ctas, void* stream, const Parameters& parameters) {
  cuda::launch(kernel, ctas, kPassThreads, 0, static_cast<cudaStream_t>(stream), &parameters, cuda::Dependency::full);
}

void enqueue_rows(const Sizes& sizes, RowPass pass, void* stream) {
  pass.rows = sizes[0] * sizes[1] * sizes[2];
  pass.heads = sizes[1], pass.len = sizes[2], pass.dim = sizes[3];
  enqueue(row_pass_kernel(), std::min(divide_up(pass.rows, kPassThreads / 32), kMaxGrid), stream, pass);
}

void enqueue_sum(const SumStep& step, float* partial, void* stream) {
  const ColumnSum sum{step.rows, step.columns, ref(step.from), result_ref(step.to), partial, step.accumulate};
  enqueue(partial_sums_kernel(), divide_up(step.rows, kSumRows) * divide_up(step.columns, kSumColumns), stream, sum);
  enqueue(final_sums_kernel(), divide_up(step.columns, kPassThreads), stream, sum);
}

OperandRef<const void*> operand(const MatrixBatch& m) {
  return {m.data, m.transposed ? 1 : m.row_stride, m.transposed ? m.row_stride : 1, m.batch_stride};
}

void enqueue_simple(const BatchedProduct& p, void* stream, const Buffer&) {
  const ProductPass pass{.m = p.m,
                         .n = p.n,
                         .k = p.k,
                         .row_tiles = static_cast<unsigned>(divide_up(p.m, kProductTile)),
                         .column_tiles = static_cast<unsigned>(divide_up(p.n, kProductTile)),
                         .alpha = p.alpha,
                         .beta = p.beta,
                         .a = operand(p.a),
                         .b = operand(p.b),
                         .c = {target_of(p.c), p.c.row_stride, 1, p.c.batch_stride},
                         .bias = operand(p.bias),
                         .result = kind_of(p.c.dtype)};
  enqueue(product_kernel(kind_of(p.a.dtype)), p.count * pass.row_tiles * pass.column_tiles, stream, pass);
}

// cuBLASLt adds a bias of the result's type. A bias of another type is added to the fp32 result afterwards.
void enqueue_cublaslt(const BatchedProduct& p, void* stream, const Buffer& workspace) {
  if (p.bias.data == nullptr || p.bias.dtype == p.c.dtype) return cuda::multiply(p, stream, workspace);
  BatchedProduct bare = p;
  bare.bias = {};
  cuda::multiply(bare, stream, workspace);
  for (std::int64_t i = 0; i < p.count; ++i) {
    const MatrixBatch c = p.c.number(i);
    enqueue_rows({1, 1, p.m, p.n}, {.from = ref(c), .to = result_ref(c), .bias = ref(p.bias.number(i))}, stream);
  }
}

using Enqueue = void (*)(const BatchedProduct&, void* stream, const Buffer& workspace);

// Workspace for cuBLASLt, which keeps split-K partial sums in it: 16 of the largest result in fp32, but no more than
// PyTorch gives it.
std::int64_t cublaslt_workspace(const LinearProblem& p) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 20, kMost = std::int64_t{32} << 20, kSplits = 16;
  const std::int64_t m = p.rows(), n = p.columns_out(), k = p.columns_in();
  return std::clamp(kSplits * 4 * std::min(std::max({m * n, m * k, n * k}), kMost), kLeast, kMost);
}

// The workspace holds copies of inputs, then partial sums of columns, then cuBLASLt's workspace. The last two are
// aligned.
struct DevicePlan final : Plan {
  DevicePlan(const LinearProblem& p, bool simple) : Plan(p), multiply(simple ? enqueue_simple : enqueue_cublaslt) {
    if (p.pass == Pass::backward && p.wants_dbias)
      partial_bytes = aligned(divide_up(p.rows(), kSumRows) * p.columns_out() * 4);
    if (!simple) cublaslt_bytes = cublaslt_workspace(p);
    workspace_bytes = copied_bytes + partial_bytes + kAlignment + cublaslt_bytes;
    tiles = std::string("products by ") + (simple ? "a simple kernel of Fovea's own" : "cuBLASLt");
  }

  Enqueue multiply;
  std::int64_t partial_bytes = 0, cublaslt_bytes = 0;
};

std::vector<cuda::Placed> memory_of(const LinearForwardTensors& t) {
  return {cuda::placed("x", t.x), cuda::placed("weight", t.weight), cuda::placed("bias", t.bias),
          cuda::placed("y", t.y)};
}

std::vector<cuda::Placed> memory_of(const LinearBackwardTensors& t) {
  return {cuda::placed("x", t.x),   cuda::placed("weight", t.weight),   cuda::placed("dy", t.dy),
          cuda::placed("dx", t.dx), cuda::placed("dweight", t.dweight), cuda::placed("dbias", t.dbias)};
}

template <class Tensors>
void check_placements(const Plan& plan, const Tensors& tensors, const core::RunContext& context) {
  std::vector<cuda::Placed> memory = memory_of(tensors);
  memory.insert(memory.begin(), cuda::callers_workspace(context));
  cuda::check_stream(context.stream, cuda::site_of(plan));
  cuda::check_memory(memory, cuda::site_of(plan));
}

template <class Tensors>
void run(const core::Plan& base, const Tensors& tensors, const core::RunContext& context) {
  const auto& plan = static_cast<const DevicePlan&>(base);
  const cuda::CurrentDevice current(plan.device.index);
  if (!context.placement_checked) check_placements(plan, tensors, context);
  const Steps steps = steps_of(plan, tensors, context.workspace);
  char* rest = static_cast<char*>(context.workspace) + plan.copied_bytes;
  rest += (kAlignment - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(rest) % kAlignment)) % kAlignment;
  float* const partial = reinterpret_cast<float*>(rest);
  const Buffer workspace{rest + plan.partial_bytes, plan.cublaslt_bytes};
  for (const CopyStep& step : steps.copies)
    enqueue_rows(step.from.sizes, {.from = ref(step.from), .to = ref(step.to)}, context.stream);
  for (const FillStep& step : steps.fills)
    enqueue_rows(step.to.sizes, {.to = ref(step.to), .bias = ref(step.bias)}, context.stream);
  for (const BatchedProduct& product : steps.products) plan.multiply(product, context.stream, workspace);
  for (const SumStep& step : steps.sums) enqueue_sum(step, partial, context.stream);
}

void forward(const core::Plan& plan, const LinearForwardTensors& tensors, const core::RunContext& context) {
  run(plan, tensors, context);
}

void backward(const core::Plan& plan, const LinearBackwardTensors& tensors, const core::RunContext& context) {
  run(plan, tensors, context);
}

// The variants of the implementations `cuda.cublaslt` and `cuda.own`.
enum Variant { kCublaslt, kSimple };

// Why no grid holds the pass over partial sums, or no batch the products; empty if they fit. Where rows or columns do
// not fold, a product is repeated for each batch element or head.
std::string count_refusal(const LinearProblem& p) {
  const std::int64_t products = std::max({p.batch * p.heads_in, p.batch * p.heads_out, p.heads_in * p.heads_out});
  if (products > std::numeric_limits<std::int32_t>::max())
    return "takes up to 2^31 - 1 products, needs up to " + std::to_string(products);
  const std::int64_t sums = divide_up(p.rows(), kSumRows) * divide_up(p.columns_out(), kSumColumns);
  if (p.pass == Pass::backward && p.wants_dbias && sums > kMaxGrid)
    return "takes dbias of up to 2^31 - 1 tiles of 512 x 32, got " + std::to_string(sums);
  return {};
}

std::string refusal(const LinearProblem& p) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 30;
  for (const std::int64_t size : {p.rows(), p.columns_in(), p.columns_out(), p.batch, p.heads_in, p.heads_out})
    if (size > kLongest) return "takes rows and columns up to 2^30, got " + std::to_string(size);
  return count_refusal(p);
}

std::string cublaslt_obstacle() {
  if (std::string missing = cuda::unavailable(); !missing.empty()) return missing;
  return cuda::missing_matrix_library();
}

std::string obstacle(int variant) { return variant == kSimple ? cuda::unavailable() : cublaslt_obstacle(); }

// The simple kernel takes one thread block per tile. Tiles hold rows of one batch element and columns of one head,
// where these do not fold.
std::string simple_refusal(const LinearProblem& p) {
  const std::int64_t m = p.batch * divide_up(p.len, kProductTile), k = p.heads_in * divide_up(p.dim_in, kProductTile),
                     n = p.heads_out * divide_up(p.dim_out, kProductTile), most = std::max({m * n, m * k, n * k});
  if (most > kMaxGrid) return "takes results of up to 2^31 - 1 tiles of 64 x 64, got " + std::to_string(most);
  return {};
}

core::Prepared prepare(const LinearProblem& p, int variant) {
  std::string reason = refusal(p);
  if (reason.empty() && variant == kSimple) reason = simple_refusal(p);
  if (!reason.empty()) return {.refusal = std::move(reason)};
  return {.plan = std::make_shared<DevicePlan>(p, variant == kSimple)};
}

Implementation entry(std::string_view name, Variant variant) {
  return {.name = name,
          .device = DeviceKind::cuda,
          .variant = variant,
          .unavailable = obstacle,
          .prepare = prepare,
          .forward = forward,
          .backward = backward,
          .allocate_workspace = cuda::allocate_workspace,
          .release_workspace = cuda::release_workspace};
}

}  // namespace

std::vector<Implementation> cuda_implementations() {
  return {entry("cuda.cublaslt", kCublaslt), entry("cuda.own", kSimple)};
}

}  // namespace fovea::linear
