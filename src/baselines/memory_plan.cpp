// The layouts of forward and backward.
#include "baselines/memory_plan.h"

#include "baselines/counts.h"

namespace fovea::baselines {
namespace {

// Hands out consecutive arrays.
class Arrays {
 public:
  Array take(std::int64_t floats) {
    const Array array{bytes_};
    bytes_ += (floats * 4 + 63) / 64 * 64;
    return array;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

}  // namespace

ForwardLayout forward_layout(const AttentionProblem& p) {
  const Counts count = counts_of(p);
  Arrays arrays;
  ForwardLayout layout;
  layout.q = arrays.take(count.q);
  layout.k = arrays.take(count.k);
  layout.v = arrays.take(count.v);
  layout.out = arrays.take(count.out);
  layout.lse = arrays.take(2 * count.rows);
  if (!p.saved_state || p.dtype != DType::fp32) layout.scores = arrays.take(count.pairs);
  layout.bytes = arrays.bytes();
  return layout;
}

BackwardLayout backward_layout(const AttentionProblem& p) {
  const Counts count = counts_of(p);
  Arrays arrays;
  BackwardLayout layout;
  layout.q = arrays.take(count.q);
  layout.k = arrays.take(count.k);
  layout.v = arrays.take(count.v);
  layout.dout = arrays.take(count.out);
  layout.dq = arrays.take(p.wants_dq ? count.q : 0);
  layout.dk = arrays.take(p.wants_dk ? count.k : 0);
  layout.dv = arrays.take(p.wants_dv ? count.v : 0);
  layout.delta = arrays.take(count.rows);
  if (!p.saved_state || p.dtype == DType::fp16) layout.probabilities = arrays.take(count.pairs);
  if (p.wants_dq || p.wants_dk) layout.gradients = arrays.take(count.pairs);
  layout.bytes = arrays.bytes();
  return layout;
}

}  // namespace fovea::baselines
