// A task is a tile of a result, a block of copied rows, or a few columns of a sum. A library's tile that is not fp32 is
// summed in scratch memory and rounded once, with its bias.
#include "linear/host_run.h"

#include <algorithm>

#include "cpu/call.h"
#include "cpu/tasks.h"
#include "linear/host_kernels.h"
#include "linear/host_plan.h"
#include "linear/matrix_view.h"
#include "linear/packed_product.h"
#include "linear/steps.h"

namespace fovea::linear {
namespace {

using cpu::divide_up;

constexpr std::int64_t kCopiedRows = 64, kSummedColumns = 256;

// The product of tile `index`, its result where the whole one's is.
BatchedProduct tile_of(const BatchedProduct& p, const Tiling& tiling, std::int64_t index) {
  const std::int64_t number = index / (tiling.row_tiles * tiling.column_tiles);
  const std::int64_t row = index % tiling.row_tiles * tiling.rows;
  const std::int64_t column = index / tiling.row_tiles % tiling.column_tiles * tiling.columns;
  BatchedProduct tile = p;
  tile.count = 1;
  tile.m = std::min(tiling.rows, p.m - row);
  tile.n = std::min(tiling.columns, p.n - column);
  tile.a = p.a.number(number).within(row, 0);
  tile.b = p.b.number(number).within(0, column);
  tile.c = p.c.number(number).from(row, column);
  if (p.bias.data != nullptr) tile.bias = p.bias.number(number).from(0, column);
  return tile;
}

cpu::InputRows input(const MatrixBatch& m) { return {m.data, element_of(m.dtype), 0, m.row_stride}; }
cpu::OutputRows output(const MatrixBatch& m) { return {target_of(m), element_of(m.dtype), 0, m.row_stride}; }

void multiply_tile(const HostLibrary& library, BatchedProduct tile, char* sums, void* scratch) {
  const MatrixBatch result = tile.c, bias = tile.bias;
  const bool in_place = result.dtype == DType::fp32 || (bias.data == nullptr && library.rounds(tile));
  if (!in_place) tile.c = {sums, DType::fp32, tile.n};
  tile.bias = {};
  library.multiply(tile, scratch);
  if (in_place && bias.data == nullptr) return;
  host_kernels(DType::fp32).convert({input(tile.c), output(result), input(bias), tile.m, tile.n, 1.0f, 0.0f});
}

void multiply(const HostPlan& plan, const BatchedProduct& p, const core::RunContext& context) {
  char* const scratch = static_cast<char*>(context.workspace) + plan.copied_bytes;
  if (plan.is_own()) {
    if (const PackedLayout* const found = plan.layout_of(p); found != nullptr)
      return multiply_packed(p, *found, plan.room, scratch, context);
    return multiply_packed(p, PackedLayout({p.m, p.n, p.k, p.a.dtype, p.c.dtype}), plan.room, scratch, context);
  }
  const Tiling* const found = plan.tiling_of(p);
  const Tiling tiling = found != nullptr ? *found : tiling_of(p, plan.largest_tile);
  const int workers = cpu::workers_of(context, plan.workers, tiling.tiles);
  cpu::run_cancellable(context, workers, tiling.tiles, [&](std::int64_t index, int worker) {
    char* const own = scratch + worker * plan.scratch_bytes;
    multiply_tile(plan.library, tile_of(p, tiling, index), own, own + plan.sums_bytes);
  });
}

void copy(const CopyStep& step, const core::RunContext& context) {
  const MatrixView from(step.from), to(step.to);
  const std::int64_t blocks = divide_up(from.len, kCopiedRows);
  cpu::run_cancellable(context, context.threads, from.batches * from.heads * blocks, [&](std::int64_t index, int) {
    const std::int64_t batch = index / blocks / from.heads, head = index / blocks % from.heads;
    const std::int64_t first = index % blocks * kCopiedRows;
    const auto part = [&](const MatrixView& view, const TensorView& tensor) {
      const std::int64_t at = batch * tensor.strides[0] + head * tensor.strides[1];
      return MatrixBatch{view.data, view.dtype, tensor.strides[2]}.from(first, at);
    };
    host_kernels(DType::fp32)
        .convert({input(part(from, step.from)),
                  output(part(to, step.to)),
                  {nullptr, cpu::Element::fp32, 0, 0},
                  std::min(kCopiedRows, from.len - first),
                  from.dim,
                  1.0f,
                  0.0f});
  });
}

void fill(const FillStep& step, const core::RunContext& context) {
  const MatrixView to{TensorView(step.to)};
  cpu::run_cancellable(context, context.threads, to.batches * to.heads, [&](std::int64_t index, int) {
    const std::int64_t batch = index / to.heads, head = index % to.heads;
    const MatrixBatch rows{to.data, to.dtype, step.to.strides[2]};
    MatrixBatch bias{step.bias.data, step.bias.dtype};
    if (bias.data != nullptr) bias = bias.from(0, head * to.dim);
    host_kernels(DType::fp32)
        .convert({{nullptr, cpu::Element::fp32, 0, 0},
                  output(rows.from(0, batch * to.batch + head * to.head)),
                  input(bias),
                  to.len,
                  to.dim,
                  1.0f,
                  0.0f});
  });
}

void sum(const SumStep& step, const core::RunContext& context) {
  cpu::run_cancellable(context, context.threads, divide_up(step.columns, kSummedColumns), [&](std::int64_t index, int) {
    const std::int64_t first = index * kSummedColumns, columns = std::min(kSummedColumns, step.columns - first);
    float sums[kSummedColumns];
    const cpu::Kernels& kernels = host_kernels(DType::fp32);
    kernels.sum_columns({input(step.from.from(0, first)), step.rows, columns, sums});
    kernels.convert({{sums, cpu::Element::fp32, 0, columns},
                     output(step.to.from(0, first)),
                     {nullptr, cpu::Element::fp32, 0, 0},
                     1,
                     columns,
                     1.0f,
                     step.accumulate ? 1.0f : 0.0f});
  });
}

template <class Tensors>
void run(const core::Plan& base, const Tensors& tensors, const core::RunContext& context) {
  const auto& plan = static_cast<const HostPlan&>(base);
  const Steps steps = steps_of(plan, tensors, context.workspace);
  for (const CopyStep& step : steps.copies) copy(step, context);
  for (const FillStep& step : steps.fills) fill(step, context);
  for (const BatchedProduct& product : steps.products) multiply(plan, product, context);
  for (const SumStep& step : steps.sums) sum(step, context);
}

}  // namespace

void forward_on_host(const core::Plan& plan, const LinearForwardTensors& tensors, const core::RunContext& context) {
  run(plan, tensors, context);
}

void backward_on_host(const core::Plan& plan, const LinearBackwardTensors& tensors, const core::RunContext& context) {
  run(plan, tensors, context);
}

}  // namespace fovea::linear
