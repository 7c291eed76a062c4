// A task is a tile of a result, a block of copied rows, or a few columns of a sum. A tile that is not fp32 is summed in
// scratch memory and rounded once, with its bias.
#include "linear/host_run.h"

#include <algorithm>

#include "cpu/call.h"
#include "cpu/tasks.h"
#include "linear/host_kernels.h"
#include "linear/matrix_view.h"

namespace fovea::linear {
namespace {

using cpu::align_up;
using cpu::divide_up;

// Of a tile at most: large enough that a library packs its operands in little of the time. Products of few tiles are
// cut finer, down to kLeastRows.
constexpr std::int64_t kTileRows = 512, kTileColumns = 512, kLeastRows = 64, kEnoughTiles = 4;
constexpr std::int64_t kCopiedRows = 64, kSummedColumns = 256;

// Equal tiles of at most `most`.
std::int64_t tile_of(std::int64_t size, std::int64_t most) {
  return divide_up(size, std::max<std::int64_t>(1, divide_up(size, most)));
}

struct Cut {
  std::int64_t columns, column_tiles;  // of a tile, and how many
  std::int64_t rows = 0, row_tiles = 0;
  std::int64_t tiles = 0;  // of all products

  explicit Cut(const BatchedProduct& p) : columns(tile_of(p.n, kTileColumns)), column_tiles(divide_up(p.n, columns)) {
    std::int64_t most = kTileRows;
    do {
      rows = tile_of(p.m, most);
      row_tiles = divide_up(p.m, rows);
      tiles = p.count * row_tiles * column_tiles;
      most /= 2;
    } while (tiles < kEnoughTiles && most >= kLeastRows);
  }
};

// The product of tile `index`, its result where the whole one's is.
BatchedProduct tile_of(const BatchedProduct& p, const Cut& cut, std::int64_t index) {
  const std::int64_t number = index / (cut.row_tiles * cut.column_tiles);
  const std::int64_t row = index % cut.row_tiles * cut.rows;
  const std::int64_t column = index / cut.row_tiles % cut.column_tiles * cut.columns;
  BatchedProduct tile = p;
  tile.count = 1;
  tile.m = std::min(cut.rows, p.m - row);
  tile.n = std::min(cut.columns, p.n - column);
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

// The largest tile that a product of these sizes may be cut into.
BatchedProduct largest_tile(const BatchedProduct& p) {
  BatchedProduct tile = p;
  tile.m = std::min(p.m, kTileRows);
  tile.n = std::min(p.n, kTileColumns);
  return tile;
}

std::int64_t bytes_of_sums(const BatchedProduct& p) {
  const BatchedProduct tile = largest_tile(p);
  return p.c.dtype == DType::fp32 ? 0 : align_up(tile.m * tile.n * 4);
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

// Of the products that the problem becomes where nothing is split: no other has larger tiles.
std::vector<BatchedProduct> whole_products(const LinearProblem& p) {
  const std::int64_t m = p.rows(), n = p.columns_out(), k = p.columns_in();
  const MatrixBatch element{nullptr, p.dtype};
  const auto product = [&](std::int64_t rows, std::int64_t columns, std::int64_t depth, DType result) {
    return BatchedProduct{
        .m = rows, .n = columns, .k = depth, .a = element, .b = element, .c = MatrixBatch{nullptr, result}};
  };
  std::vector<BatchedProduct> all;
  if (p.pass == Pass::forward) all.push_back(product(m, n, k, p.result_dtype));
  if (p.pass == Pass::backward && p.wants_dx) all.push_back(product(m, k, n, p.result_dtype));
  if (p.pass == Pass::backward && p.wants_dweight) all.push_back(product(n, k, m, p.parameter_dtype));
  std::erase_if(all, [](const BatchedProduct& one) { return one.m * one.n * one.k == 0; });
  return all;
}

std::int64_t most_scratch(const HostLibrary& library, const LinearProblem& p) {
  std::int64_t most = 0;
  for (const BatchedProduct& one : whole_products(p)) most = std::max(most, scratch_of_tile(library, one));
  return most;
}

int planned_workers(const LinearProblem& p) {
  std::int64_t tiles = 1;
  for (const BatchedProduct& one : whole_products(p)) tiles = std::max(tiles, Cut(one).tiles);
  return cpu::most_workers(tiles);
}

}  // namespace

std::int64_t scratch_of_tile(const HostLibrary& library, const BatchedProduct& p) {
  return bytes_of_sums(p) + align_up(library.scratch_bytes(largest_tile(p)));
}

void multiply(const HostLibrary& library, const BatchedProduct& p, const core::RunContext& context,
              const HostScratch& scratch) {
  const Cut cut(p);
  const std::int64_t bytes = scratch_of_tile(library, p), sums = bytes_of_sums(p);
  const int workers = cpu::workers_of(context, scratch.workers, cut.tiles);
  cpu::run_cancellable(context, workers, cut.tiles, [&](std::int64_t index, int worker) {
    char* const own = scratch.memory + worker * bytes;
    multiply_tile(library, tile_of(p, cut, index), own, own + sums);
  });
}

std::int64_t host_workspace_bytes(const HostLibrary& library, const LinearProblem& p) {
  return copied_bytes(p) + planned_workers(p) * most_scratch(library, p);
}

std::string host_tiles(const HostLibrary& library, const LinearProblem& p) {
  std::string text;
  for (const BatchedProduct& one : whole_products(p)) {
    const Cut cut(one);
    text += (text.empty() ? "" : "; ") + std::to_string(one.m) + " x " + std::to_string(one.n) + " x " +
            std::to_string(one.k) + ": " + std::to_string(cut.tiles) + " tiles of " + std::to_string(cut.rows) + " x " +
            std::to_string(cut.columns);
  }
  return text + (text.empty() ? "" : ", each one call of ") + (text.empty() ? "" : std::string(library.title));
}

void run_on_host(const HostLibrary& library, const LinearProblem& p, const Steps& steps,
                 const core::RunContext& context) {
  const HostScratch scratch{static_cast<char*>(context.workspace) + copied_bytes(p), planned_workers(p)};
  for (const CopyStep& step : steps.copies) copy(step, context);
  for (const FillStep& step : steps.fills) fill(step, context);
  for (const BatchedProduct& product : steps.products) multiply(library, product, context, scratch);
  for (const SumStep& step : steps.sums) sum(step, context);
}

}  // namespace fovea::linear
