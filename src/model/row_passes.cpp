// Splits each pass into blocks of rows, columns or elements.
#include "model/row_passes.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "cpu/tasks.h"
#include "linear/host_kernels.h"

namespace fovea::model {
namespace {

constexpr std::int64_t kRows = 16;        // of a task
constexpr std::int64_t kColumns = 64;     // of a task that goes through all rows
constexpr std::int64_t kElements = 4096;  // of a partial sum of squares
constexpr std::int64_t kSumsPerTask = 64;
constexpr std::int64_t kElementsPerTask = 1 << 14;
// So many weights in bf16, 64 MiB, are no longer in a cache when the next forward reads them.
constexpr std::int64_t kStreamedWeights = 1 << 25;

const cpu::ModelKernels& kernels() { return linear::host_kernels(DType::fp32).model; }

std::int64_t divide_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step; }

// Element `index` of an array.
const void* at(const void* data, cpu::Element element, std::int64_t index) {
  return static_cast<const char*>(data) + index * (element == cpu::Element::fp32 ? 4 : 2);
}
void* at(void* data, cpu::Element element, std::int64_t index) {
  return static_cast<char*>(data) + index * (element == cpu::Element::fp32 ? 4 : 2);
}

// run(first, count) for blocks of `step` items.
void for_blocks(std::int64_t items, std::int64_t step, const core::RunContext& context,
                const std::function<void(std::int64_t first, std::int64_t count)>& run) {
  cpu::run_cancellable(context, context.threads, divide_up(items, step), [&](std::int64_t index, int) {
    const std::int64_t first = index * step;
    run(first, std::min(step, items - first));
  });
}

}  // namespace

std::int64_t row_blocks(std::int64_t rows) { return divide_up(rows, kRows); }

void rms_norm(const cpu::RmsNormTask& whole, const core::RunContext& context) {
  for_blocks(whole.rows, kRows, context, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t begin = first * whole.columns;
    cpu::RmsNormTask t = whole;
    t.x += begin, t.y = at(t.y, t.element, begin), t.inverse += first;
    if (t.branch != nullptr) t.branch = at(t.branch, t.element, begin), t.sum += begin;
    t.rows = count;
    kernels().rms_norm(t);
  });
}

void rms_norm_backward(const cpu::RmsNormBackwardTask& whole, float* partials, const core::RunContext& context) {
  const std::int64_t blocks = row_blocks(whole.rows);
  for_blocks(whole.rows, kRows, context, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t begin = first * whole.columns;
    cpu::RmsNormBackwardTask t = whole;
    t.x += begin, t.dy = at(t.dy, t.element, begin), t.dx += begin, t.inverse += first;
    if (t.rounded != nullptr) t.rounded += begin;
    t.dweight = partials + first / kRows * whole.columns;
    t.rows = count;
    kernels().rms_norm_backward(t);
  });
  float* const sums = partials + blocks * whole.columns;
  linear::host_kernels(DType::fp32)
      .sum_columns({{partials, cpu::Element::fp32, 0, whole.columns}, blocks, whole.columns, sums});
  for (std::int64_t c = 0; c < whole.columns; ++c)
    whole.dweight[c] = whole.accumulate_dweight ? whole.dweight[c] + sums[c] : sums[c];
}

void swiglu(const cpu::SwigluTask& whole, const core::RunContext& context) {
  for_blocks(whole.rows, kRows, context, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t begin = first * whole.columns;
    cpu::SwigluTask t = whole;
    t.gate_up = at(t.gate_up, t.element, 2 * begin), t.out = at(t.out, t.element, begin);
    t.rows = count;
    kernels().swiglu(t);
  });
}

void swiglu_backward(const cpu::SwigluBackwardTask& whole, const core::RunContext& context) {
  for_blocks(whole.rows, kRows, context, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t begin = first * whole.columns;
    cpu::SwigluBackwardTask t = whole;
    t.gate_up = at(t.gate_up, t.element, 2 * begin), t.dout = at(t.dout, t.element, begin);
    t.dgate_up = at(t.dgate_up, t.element, 2 * begin);
    if (t.out != nullptr) t.out = at(t.out, t.element, begin);
    t.rows = count;
    kernels().swiglu_backward(t);
  });
}

void gather(const cpu::GatherTask& whole, const core::RunContext& context) {
  for_blocks(whole.count, kRows, context, [&](std::int64_t first, std::int64_t count) {
    kernels().gather({whole.table, whole.tokens + first, whole.rows + first * whole.columns, count, whole.columns});
  });
}

void scatter(const cpu::ScatterTask& whole, const core::RunContext& context) {
  for_blocks(whole.columns, kColumns, context, [&](std::int64_t first, std::int64_t count) {
    cpu::ScatterTask t = whole;
    t.first_column += first;
    t.columns = count;
    kernels().scatter(t);
  });
}

void cross_entropy(const cpu::CrossEntropyTask& whole, const core::RunContext& context) {
  for_blocks(whole.rows, kRows, context, [&](std::int64_t first, std::int64_t count) {
    cpu::CrossEntropyTask t = whole;
    t.logits += first * whole.columns, t.targets += first, t.losses += first;
    t.rows = count;
    kernels().cross_entropy(t);
  });
}

void round(std::uint16_t* to, const float* from, std::int64_t count, const core::RunContext& context) {
  for_blocks(count, kElementsPerTask, context, [&](std::int64_t first, std::int64_t some) {
    linear::host_kernels(DType::fp32)
        .convert({.from = {from + first, cpu::Element::fp32, 0, some},
                  .to = {to + first, cpu::Element::bf16, 0, some},
                  .bias = {nullptr, cpu::Element::fp32, 0, 0},
                  .rows = 1,
                  .columns = some,
                  .factor = 1.0f,
                  .beta = 0.0f});
  });
}

double norm_of(std::span<const float> values, const core::RunContext& context) {
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t pieces = divide_up(count, kElements);
  std::vector<float> sums(static_cast<std::size_t>(pieces));
  for_blocks(pieces, kSumsPerTask, context, [&](std::int64_t first, std::int64_t some) {
    for (std::int64_t piece = first; piece < first + some; ++piece) {
      const std::int64_t begin = piece * kElements;
      sums[static_cast<std::size_t>(piece)] =
          kernels().sum_of_squares(values.data() + begin, std::min(kElements, count - begin));
    }
  });
  double sum = 0;
  for (const float one : sums) sum += one;
  return std::sqrt(sum);
}

void adamw(const std::vector<cpu::AdamWTask>& whole, const core::RunContext& context) {
  std::int64_t weights = 0;
  for (const cpu::AdamWTask& one : whole) weights += one.count;
  std::vector<cpu::AdamWTask> tasks;
  for (const cpu::AdamWTask& one : whole) {
    for (std::int64_t begin = 0; begin < one.count; begin += kElementsPerTask) {
      cpu::AdamWTask& task = tasks.emplace_back(one);
      task.weight += begin, task.m += begin, task.v += begin, task.gradient += begin;
      if (task.rounded != nullptr) task.rounded += begin;
      task.streams = task.rounded != nullptr && weights >= kStreamedWeights;
      task.count = std::min(kElementsPerTask, one.count - begin);
    }
  }
  for_blocks(static_cast<std::int64_t>(tasks.size()), 1, context,
             [&](std::int64_t index, std::int64_t) { kernels().adamw(tasks[static_cast<std::size_t>(index)]); });
}

}  // namespace fovea::model
