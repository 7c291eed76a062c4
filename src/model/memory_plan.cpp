// Every region begins on a cache line.
#include "model/memory_plan.h"

#include "cpu/kernels/model_kernels.h"
#include "model/row_passes.h"

namespace fovea::model {
namespace {

class Offsets {
 public:
  std::int64_t bytes(std::int64_t count) {
    const std::int64_t begin = end_;
    end_ += (count + 63) / 64 * 64;
    return begin;
  }
  std::int64_t floats(std::int64_t count) { return bytes(count * static_cast<std::int64_t>(sizeof(float))); }
  std::int64_t end() const { return end_; }

 private:
  std::int64_t end_ = 0;
};

}  // namespace

MemoryPlan::MemoryPlan(const Config& c, const Extent& e, const ParameterMap& map, const Calls& calls) {
  const std::int64_t rows = e.rows();
  Offsets next;
  for (std::int64_t* const array : {&weights, &gradients, &first_moment, &second_moment})
    *array = next.floats(map.floats());
  state_bytes = next.end();
  for (std::int64_t i = 0; i < 2 * c.layers + 1; ++i)
    norms.push_back({.x = next.floats(rows * c.width), .inverse = next.floats(rows), .y = next.floats(rows * c.width)});
  for (std::int64_t i = 0; i < c.layers; ++i)
    blocks.push_back({.attention_saved = next.bytes(calls.attention_saved_bytes),
                      .gate_up = next.floats(rows * 2 * c.hidden),
                      .hidden = next.floats(rows * c.hidden)});
  logits = next.floats(rows * c.vocabulary);
  losses = next.bytes(rows * static_cast<std::int64_t>(sizeof(cpu::RowLoss)));
  activation_bytes = next.end() - state_bytes;
  branch = next.floats(rows * c.width);
  dstream = next.floats(rows * c.width);
  dy = next.floats(rows * c.width);
  dhidden = next.floats(rows * c.hidden);
  dgate_up = next.floats(rows * 2 * c.hidden);
  partials = next.floats((row_blocks(rows) + 1) * c.width);
  workspace_bytes = calls.workspace_bytes();
  workspace = next.bytes(workspace_bytes);
  total_bytes = next.end();
}

}  // namespace fovea::model
