// Greedy: the first simpler case that still fails is taken, until none does.
#include "verification/shrink.h"

#include <vector>

namespace fovea::verification {
namespace {

using core::Case;

void set_lengths(AttentionProblem& p, std::int64_t len_q, std::int64_t len_k) {
  p.len_q = len_q;
  p.len_k = p.mask == Mask::causal ? len_q : len_k;
}

std::vector<Case> simpler(const Case& c) {
  std::vector<Case> all;
  const auto add = [&all, &c](auto change) {
    Case changed = c;
    change(changed);
    if (changed != c) all.push_back(std::move(changed));
  };
  const auto half = [](std::int64_t size) { return (size + 1) / 2; };
  const auto less = [](std::int64_t size) { return size > 1 ? size - 1 : size; };
  add([](Case& n) { n.problem.batch = n.problem.batch > 1 ? 1 : n.problem.batch; });
  add([](Case& n) {
    if (n.problem.heads_kv > 1) n.problem.heads_q = (n.problem.heads_q / n.problem.heads_kv), n.problem.heads_kv = 1;
  });
  add([](Case& n) { n.problem.heads_q = n.problem.heads_kv; });
  add([&](Case& n) { set_lengths(n.problem, half(n.problem.len_q), half(n.problem.len_k)); });
  add([&](Case& n) { set_lengths(n.problem, half(n.problem.len_q), n.problem.len_k); });
  add([&](Case& n) { set_lengths(n.problem, n.problem.len_q, half(n.problem.len_k)); });
  add([&](Case& n) { n.problem.dim_qk = half(n.problem.dim_qk); });
  add([&](Case& n) { n.problem.dim_v = half(n.problem.dim_v); });
  add([](Case& n) { n.data = "normal"; });
  add([](Case& n) { n.place = "contiguous"; });
  add([](Case& n) { n.layout = core::Layout::bhld; });
  add([](Case& n) { n.problem.mask = Mask::none; });
  add([](Case& n) { n.problem.dtype = n.problem.result_dtype = DType::fp32; });
  add([&](Case& n) { set_lengths(n.problem, less(n.problem.len_q), n.problem.len_k); });
  add([&](Case& n) { set_lengths(n.problem, n.problem.len_q, less(n.problem.len_k)); });
  add([&](Case& n) { n.problem.dim_qk = less(n.problem.dim_qk); });
  add([&](Case& n) { n.problem.dim_v = less(n.problem.dim_v); });
  return all;
}

}  // namespace

Case shrunk(Case c, const std::function<bool(const Case&)>& fails, int tries) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (Case& candidate : simpler(c)) {
      if (tries-- <= 0) return c;
      if (!fails(candidate)) continue;
      c = std::move(candidate);
      smaller = true;
      break;
    }
  }
  return c;
}

}  // namespace fovea::verification
