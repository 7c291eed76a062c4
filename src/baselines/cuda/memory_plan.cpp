// The layouts of forward and backward.
#include "baselines/cuda/memory_plan.h"

#include <algorithm>

#include "baselines/counts.h"
#include "baselines/cuda/row_passes.h"

namespace fovea::cuda::baselines {
namespace {

using fovea::baselines::Counts;
using fovea::baselines::counts_of;

constexpr std::int64_t kAlignment = 256;

// Hands out consecutive arrays.
class Layout {
 public:
  Array take(std::int64_t bytes) {
    const Array array{bytes_, bytes};
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return array;
  }
  Array floats(std::int64_t count) { return take(4 * count); }
  std::int64_t bytes() const { return bytes_ + kAlignment - 1; }

 private:
  std::int64_t bytes_ = 0;
};

// The library's workspace, for split-K sums: as large as PyTorch's, or smaller for small problems.
Array product_memory(Layout& layout, const Counts& count) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 20, kMost = std::int64_t{32} << 20;
  const std::int64_t bytes = std::clamp(4 * count.pairs, kLeast, kMost);
  return layout.take(bytes);
}

Array scores_of_piece(Layout& layout, const AttentionProblem& p, std::int64_t pairs) {
  if (p.dtype == DType::fp32) return {};
  return layout.floats(pairs);
}

}  // namespace

void* Array::in(void* workspace) const {
  if (offset < 0) return nullptr;
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(workspace) % kAlignment);
  return static_cast<char*>(workspace) + (kAlignment - past) % kAlignment + offset;
}

ForwardLayout forward_layout(const AttentionProblem& p, std::int64_t pairs_of_piece) {
  const Counts count = counts_of(p);
  const std::int64_t size = size_of(p.dtype);
  Layout layout;
  ForwardLayout m;
  m.q = layout.take(count.q * size);
  m.k = layout.take(count.k * size);
  m.v = layout.take(count.v * size);
  m.log_sum_exps = layout.take(count.rows * static_cast<std::int64_t>(sizeof(LogSumExp)));
  if (!p.saved_state) m.probabilities = layout.take(count.pairs * size);
  m.scores = scores_of_piece(layout, p, pairs_of_piece);
  m.products = product_memory(layout, count);
  m.bytes = layout.bytes();
  return m;
}

BackwardLayout backward_layout(const AttentionProblem& p, std::int64_t pairs_of_piece) {
  const Counts count = counts_of(p);
  const std::int64_t size = size_of(p.dtype);
  const bool grouped = p.heads_q != p.heads_kv;
  Layout layout;
  BackwardLayout m;
  m.q = layout.take(count.q * size);
  m.k = layout.take(count.k * size);
  m.v = layout.take(count.v * size);
  m.dout = layout.take(count.out * size);
  if (grouped && p.wants_dk) m.dk = layout.floats(count.k);
  if (grouped && p.wants_dv) m.dv = layout.floats(count.v);
  m.delta = layout.floats(count.rows);
  if (!p.saved_state) m.probabilities = layout.take(count.pairs * size);
  if (p.wants_dq || p.wants_dk) m.gradients = layout.take(count.pairs * size);
  m.scores = scores_of_piece(layout, p, pairs_of_piece);
  m.products = product_memory(layout, count);
  m.bytes = layout.bytes();
  return m;
}

}  // namespace fovea::cuda::baselines
