// The layouts of forward and backward.
#include "baselines/cuda/memory_plan.h"

#include <algorithm>

#include "baselines/counts.h"
#include "baselines/cuda/pieces.h"

namespace fovea::cuda::baselines {
namespace {

using fovea::baselines::Counts;
using fovea::baselines::counts_of;
using fovea::baselines::Form;

constexpr std::int64_t kAlignment = 256;

// Hands out consecutive arrays from the first aligned byte on. With a null base it only counts.
class Layout {
 public:
  explicit Layout(void* base) : base_(static_cast<char*>(base)) {
    const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(base) % kAlignment);
    if (past > 0) base_ += kAlignment - past;
  }
  void* take(std::int64_t bytes) {
    char* array = base_ == nullptr ? nullptr : base_ + bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return array;
  }
  float* floats(std::int64_t count) { return static_cast<float*>(take(4 * count)); }
  std::int64_t bytes() const { return bytes_ + kAlignment - 1; }

 private:
  char* base_;
  std::int64_t bytes_ = 0;
};

// The library's workspace, for split-K sums: as large as PyTorch's, or smaller for small problems.
Buffer product_memory(Layout& layout, const Counts& count) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 20, kMost = std::int64_t{32} << 20;
  const std::int64_t bytes = std::clamp(4 * count.pairs, kLeast, kMost);
  return {layout.take(bytes), bytes};
}

float* scores_of_piece(Layout& layout, Form form, const AttentionProblem& p) {
  if (p.dtype == DType::fp32) return nullptr;
  return layout.floats(most_pairs(form, p));
}

}  // namespace

ForwardMemory forward_memory(Form form, const AttentionProblem& p, void* workspace) {
  const Counts count = counts_of(p);
  const std::int64_t size = size_of(p.dtype);
  Layout layout(workspace);
  ForwardMemory m{};
  m.q = layout.take(count.q * size);
  m.k = layout.take(count.k * size);
  m.v = layout.take(count.v * size);
  m.log_sum_exps = static_cast<LogSumExp*>(layout.take(count.rows * static_cast<std::int64_t>(sizeof(LogSumExp))));
  if (!p.saved_state) m.probabilities = layout.take(count.pairs * size);
  m.scores = scores_of_piece(layout, form, p);
  m.products = product_memory(layout, count);
  m.bytes = layout.bytes();
  return m;
}

BackwardMemory backward_memory(Form form, const AttentionProblem& p, void* workspace) {
  const Counts count = counts_of(p);
  const std::int64_t size = size_of(p.dtype);
  const bool grouped = p.heads_q != p.heads_kv;
  Layout layout(workspace);
  BackwardMemory m{};
  m.q = layout.take(count.q * size);
  m.k = layout.take(count.k * size);
  m.v = layout.take(count.v * size);
  m.dout = layout.take(count.out * size);
  if (grouped && p.wants_dk) m.dk = layout.floats(count.k);
  if (grouped && p.wants_dv) m.dv = layout.floats(count.v);
  m.delta = layout.floats(count.rows);
  if (!p.saved_state) m.probabilities = layout.take(count.pairs * size);
  if (p.wants_dq || p.wants_dk) m.gradients = layout.take(count.pairs * size);
  m.scores = scores_of_piece(layout, form, p);
  m.products = product_memory(layout, count);
  m.bytes = layout.bytes();
  return m;
}

}  // namespace fovea::cuda::baselines
