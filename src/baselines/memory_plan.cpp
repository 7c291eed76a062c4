// The layouts of forward and backward.
#include "baselines/memory_plan.h"

#include "baselines/counts.h"

namespace fovea::baselines {
namespace {

// Hands out consecutive pieces of memory. With a null base it only counts.
class Pieces {
 public:
  explicit Pieces(void* base) : base_(static_cast<char*>(base)) {}
  float* take(std::int64_t floats) {
    char* piece = base_ == nullptr ? nullptr : base_ + bytes_;
    bytes_ += (floats * 4 + 63) / 64 * 64;
    return reinterpret_cast<float*>(piece);
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  char* base_;
  std::int64_t bytes_ = 0;
};

}  // namespace

ForwardMemory forward_memory(const AttentionProblem& p, void* workspace) {
  const Counts count = counts_of(p);
  Pieces pieces(workspace);
  ForwardMemory m{};
  m.q = pieces.take(count.q);
  m.k = pieces.take(count.k);
  m.v = pieces.take(count.v);
  m.out = pieces.take(count.out);
  m.lse = reinterpret_cast<LogSumExp*>(pieces.take(2 * count.rows));
  if (!p.saved_state || p.dtype != DType::fp32) m.scores = pieces.take(count.pairs);
  m.bytes = pieces.bytes();
  return m;
}

BackwardMemory backward_memory(const AttentionProblem& p, void* workspace) {
  const Counts count = counts_of(p);
  Pieces pieces(workspace);
  BackwardMemory m{};
  m.q = pieces.take(count.q);
  m.k = pieces.take(count.k);
  m.v = pieces.take(count.v);
  m.dout = pieces.take(count.out);
  m.dq = pieces.take(p.wants_dq ? count.q : 0);
  m.dk = pieces.take(p.wants_dk ? count.k : 0);
  m.dv = pieces.take(p.wants_dv ? count.v : 0);
  m.delta = pieces.take(count.rows);
  if (!p.saved_state || p.dtype == DType::fp16) m.probabilities = pieces.take(count.pairs);
  if (p.wants_dq || p.wants_dk) m.gradients = pieces.take(count.pairs);
  m.bytes = pieces.bytes();
  return m;
}

}  // namespace fovea::baselines
