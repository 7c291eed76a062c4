// Greedy: each change is repeated for as long as the case still fails, until none helps any more.
#include "verification/shrink.h"

namespace fovea::verification {
namespace {

using core::Case;

void set_lengths(AttentionProblem& p, std::int64_t len_q, std::int64_t len_k) {
  p.len_q = len_q;
  p.len_k = p.mask == Mask::causal ? len_q : len_k;
}

void drop_head(AttentionProblem& p) {
  if (p.heads_kv <= 1) return;
  p.heads_q -= p.heads_q / p.heads_kv;
  --p.heads_kv;
}

using Change = void (*)(Case&);

constexpr Change kSimplify[] = {
    [](Case& c) { c.data = "normal"; },
    [](Case& c) { c.place = "contiguous"; },
    [](Case& c) { c.layout = core::Layout::bhld; },
    [](Case& c) { c.problem.mask = Mask::none; },
    [](Case& c) { c.problem.dtype = c.problem.result_dtype = DType::fp32; },
    [](Case& c) { c.problem.heads_q = c.problem.heads_kv; },
    [](Case& c) { drop_head(c.problem); },
};

// What remains of a size: half, then seven eighths, then all but one; never less than one of what was there.
constexpr std::int64_t kEighths[] = {4, 1, 0};
std::int64_t less(std::int64_t size, std::int64_t eighths) {
  const std::int64_t step = eighths == 0 ? 1 : size * eighths / 8;
  return size > 1 && step < size ? size - step : size;
}

using Resize = void (*)(AttentionProblem&, std::int64_t eighths);

constexpr Resize kResize[] = {
    [](AttentionProblem& p, std::int64_t by) { p.batch = less(p.batch, by); },
    [](AttentionProblem& p, std::int64_t by) { set_lengths(p, less(p.len_q, by), less(p.len_k, by)); },
    [](AttentionProblem& p, std::int64_t by) { set_lengths(p, less(p.len_q, by), p.len_k); },
    [](AttentionProblem& p, std::int64_t by) { set_lengths(p, p.len_q, less(p.len_k, by)); },
    [](AttentionProblem& p, std::int64_t by) { p.dim_qk = less(p.dim_qk, by); },
    [](AttentionProblem& p, std::int64_t by) { p.dim_v = less(p.dim_v, by); },
};

}  // namespace

Case shrunk(Case c, const std::function<bool(const Case&)>& fails, int tries) {
  bool smaller = true;
  // Takes a change as often as the case fails with it.
  const auto repeat = [&](const auto& change) {
    for (;;) {
      Case changed = c;
      change(changed);
      if (changed == c || tries-- <= 0 || !fails(changed)) return;
      c = std::move(changed);
      smaller = true;
    }
  };
  while (smaller && tries > 0) {
    smaller = false;
    for (const std::int64_t eighths : kEighths) {
      for (const Resize resize : kResize) repeat([&](Case& changed) { resize(changed.problem, eighths); });
    }
    for (const Change change : kSimplify) repeat(change);
  }
  return c;
}

}  // namespace fovea::verification
