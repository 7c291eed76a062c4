// Every region begins on a cache line, on a GPU at a multiple of 256 bytes, as memory that CUDA allocates.
#include "model/memory_plan.h"

#include "model/device_work.h"

namespace fovea::model {
namespace {

class Offsets {
 public:
  explicit Offsets(std::int64_t alignment) : alignment_(alignment) {}

  std::int64_t bytes(std::int64_t count) {
    const std::int64_t begin = end_;
    end_ += (count + alignment_ - 1) / alignment_ * alignment_;
    return begin;
  }
  std::int64_t floats(std::int64_t count) { return bytes(count * static_cast<std::int64_t>(sizeof(float))); }
  std::int64_t end() const { return end_; }

 private:
  std::int64_t alignment_, end_ = 0;
};

}  // namespace

MemoryPlan::MemoryPlan(const Config& c, const Extent& e, const ParameterMap& map, const Calls& calls) {
  const std::int64_t rows = e.rows();
  const DeviceKind kind = calls.device.kind;
  const bool on_gpu = kind == DeviceKind::cuda;
  Offsets next(on_gpu ? 256 : 64);
  for (std::int64_t* const array : {&weights, &gradients, &first_moment, &second_moment})
    *array = next.floats(map.floats());
  state_bytes = next.end();
  for (std::int64_t i = 0; i < 2 * c.layers + 1; ++i)
    norms.push_back({.x = next.floats(rows * c.width),
                     .inverse = next.floats(on_gpu ? 0 : rows),
                     .y = next.floats(rows * c.width)});
  for (std::int64_t i = 0; i < c.layers; ++i)
    blocks.push_back({.attention_saved = next.bytes(calls.attention_saved_bytes),
                      .gate_up = next.floats(rows * 2 * c.hidden),
                      .hidden = next.floats(rows * c.hidden)});
  logits = next.floats(rows * c.vocabulary);
  losses = next.bytes(rows * static_cast<std::int64_t>(sizeof(cpu::RowLoss)));
  tokens = next.bytes(2 * rows * static_cast<std::int64_t>(sizeof(std::int32_t)));
  activation_bytes = next.end() - state_bytes;
  branch = next.floats(rows * c.width);
  dstream = next.floats(rows * c.width);
  dy = next.floats(rows * c.width);
  dhidden = next.floats(rows * c.hidden);
  dgate_up = next.floats(rows * 2 * c.hidden);
  partials = next.floats(partial_count(kind, rows, c.width));
  square_sums = next.floats(square_sum_count(kind, map.floats()));
  clipping = next.bytes(static_cast<std::int64_t>(sizeof(Clipping)));
  workspace_bytes = calls.workspace_bytes();
  workspace = next.bytes(workspace_bytes);
  total_bytes = next.end();
}

}  // namespace fovea::model
