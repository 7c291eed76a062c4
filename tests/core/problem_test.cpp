// Flops are counted from visible pairs; both are compared with a brute-force count.
#include "fovea/problem.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace fovea {
namespace {

// The mask by its definition, sharing nothing with key_window.
bool visible(const AttentionProblem& p, std::int64_t i, std::int64_t j) {
  if (p.mask == Mask::none) return true;
  if (p.mask == Mask::causal_bottom_right) return j <= i + p.len_k - p.len_q;
  return j <= i;
}

TEST(Problem, VisiblePairsAndFlopsMatchBruteForce) {
  for (std::uint64_t n = 0; n < 1000; ++n) {
    const auto random = core::philox(1, 0, n);
    AttentionProblem p{.batch = 1 + random[0] % 3,
                       .heads_q = 2,
                       .heads_kv = 1,
                       .len_q = random[1] % 40,
                       .len_k = random[2] % 40,
                       .dim_qk = 3,
                       .dim_v = 5};
    p.mask = static_cast<Mask>(random[3] % 4);
    if (p.mask == Mask::causal) p.len_k = p.len_q;
    std::int64_t pairs = 0;
    for (std::int64_t i = 0; i < p.len_q; ++i) {
      for (std::int64_t j = 0; j < p.len_k; ++j) pairs += visible(p, i, j);
    }
    ASSERT_EQ(visible_pairs(p), pairs) << p.len_q << " " << p.len_k << " " << static_cast<int>(p.mask);
    const double heads = static_cast<double>(p.batch * 2 * pairs);
    ASSERT_EQ(flops(p), heads * 2 * (3 + 5));
    p.pass = Pass::backward;
    ASSERT_EQ(flops(p), heads * 2 * (3 * 3 + 2 * 5));
  }
}

}  // namespace
}  // namespace fovea
