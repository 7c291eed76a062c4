// Every region begins on a cache line, on a GPU at a multiple of 256 bytes, as memory that CUDA allocates.
#include "model/memory_plan.h"

#include <algorithm>

#include "model/device_work.h"

namespace fovea::model {

class MemoryPlan::Offsets {
 public:
  Offsets(std::int64_t alignment, DType type) : alignment_(alignment), type_(type) {}

  std::int64_t bytes(std::int64_t count) {
    const std::int64_t begin = end_;
    end_ += (count + alignment_ - 1) / alignment_ * alignment_;
    return begin;
  }
  std::int64_t floats(std::int64_t count) { return bytes(count * static_cast<std::int64_t>(sizeof(float))); }
  std::int64_t numbers(std::int64_t count) { return bytes(count * size_of(type_)); }  // of the model's type
  // The region at `begin` ends here, or has so many bytes.
  void extend(std::int64_t begin, std::int64_t bytes_there) { bytes(std::max(begin + bytes_there, end_) - end_); }
  std::int64_t end() const { return end_; }

 private:
  std::int64_t alignment_, end_ = 0;
  DType type_;
};

void MemoryPlan::add_activations(const Config& c, const Extent& e, const Calls& calls, Offsets& next) {
  const std::int64_t rows = e.rows(), inverses = calls.device.kind == DeviceKind::cuda ? 0 : rows;
  const auto add_norm = [&] {
    return NormMemory{
        .x = next.floats(rows * c.width), .inverse = next.floats(inverses), .y = next.numbers(rows * c.width)};
  };
  for (std::int64_t i = 0; i < c.layers; ++i) {
    if (i > 0 && c.checkpoints_activations) {
      norms.insert(norms.end(), {norms[0], norms[1]});
      norms[static_cast<std::size_t>(2 * i)].x = next.floats(rows * c.width);
      blocks.push_back(blocks[0]);
      continue;
    }
    for (int norm = 0; norm < 2; ++norm) norms.push_back(add_norm());
    blocks.push_back(
        {.attention_saved = next.bytes(calls.attention_saved_bytes), .gate_up = next.numbers(rows * 2 * c.hidden)});
  }
  norms.push_back(add_norm());
}

MemoryPlan::MemoryPlan(const Config& c, const Extent& e, const ParameterMap& map, const Calls& calls) {
  const std::int64_t rows = e.rows();
  const DeviceKind kind = calls.device.kind;
  const bool is_fp32 = c.dtype == DType::fp32;
  Offsets next(kind == DeviceKind::cuda ? 256 : 64, c.dtype);
  for (std::int64_t* const array : {&weights, &gradients, &first_moment, &second_moment})
    *array = next.floats(map.floats());
  rounded = next.numbers(is_fp32 ? 0 : map.floats());
  state_bytes = next.end();
  add_activations(c, e, calls, next);
  logits = hidden = next.numbers(rows * c.hidden);
  next.extend(logits, rows * c.vocabulary * static_cast<std::int64_t>(sizeof(float)));
  losses = next.bytes(rows * static_cast<std::int64_t>(sizeof(cpu::RowLoss)));
  tokens = next.bytes(2 * rows * static_cast<std::int64_t>(sizeof(std::int32_t)));
  activation_bytes = next.end() - state_bytes;
  const std::int64_t kept_bytes = next.end();
  auto bytes_of_region = [&next, begin = kept_bytes]() mutable {
    const std::int64_t bytes = next.end() - begin;
    begin = next.end();
    return bytes;
  };
  branch = dy = next.numbers(rows * c.width);
  const std::int64_t branch_bytes = bytes_of_region();
  dstream = next.floats(rows * c.width);
  dbranch = is_fp32 ? dstream : next.numbers(rows * c.width);
  partials = next.floats(partial_count(kind, rows, c.width));
  const std::int64_t gradient_bytes = bytes_of_region();
  square_sums = next.floats(square_sum_count(kind, map.floats()));
  clipping = next.bytes(static_cast<std::int64_t>(sizeof(Clipping)));
  workspace_bytes = calls.workspace_bytes();
  const std::int64_t clipping_bytes = bytes_of_region();
  workspace = next.bytes(workspace_bytes);
  const std::int64_t again = c.checkpoints_activations ? calls.workspace_bytes(Pass::forward) : 0;
  forward_bytes = kept_bytes + branch_bytes + calls.workspace_bytes(Pass::forward);
  backward_bytes = kept_bytes + branch_bytes + gradient_bytes + std::max(calls.workspace_bytes(Pass::backward), again);
  optimizer_bytes = state_bytes + clipping_bytes;
  total_bytes = next.end();
}

}  // namespace fovea::model
