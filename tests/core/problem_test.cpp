// Flops are counted from visible pairs; both are compared with a brute-force count.
#include "fovea/problem.h"

#include <gtest/gtest.h>

#include "attention/mask.h"
#include "core/random.h"

namespace fovea {
namespace {

// The mask's rule written out; shares nothing with key_window.
bool visible(const AttentionProblem& p, std::int64_t i, std::int64_t j) {
  const std::int64_t own = p.mask.alignment == Mask::Alignment::bottom_right ? i + p.len_k - p.len_q : i;
  const auto before = static_cast<double>(own - j), after = -before;  // no bound is too large for these
  return before <= static_cast<double>(p.mask.left) && after <= static_cast<double>(p.mask.right);
}

Mask drawn_mask(std::uint32_t kind, std::uint32_t bounds) {
  constexpr std::int64_t kBounds[] = {0, 1, 2, 5, 17, 38, 39, 40, 41, 90, Mask::kLargestBound, Mask::kUnlimited};
  constexpr Mask kNamed[] = {Mask::none, Mask::causal, Mask::causal_top_left, Mask::causal_bottom_right};
  if (kind % 7 < 4) return kNamed[kind % 7];
  return {static_cast<Mask::Alignment>(1 + kind % 3), kBounds[bounds % 11], kBounds[bounds / 11 % 12]};
}

TEST(Problem, VisiblePairsAndFlopsMatchBruteForce) {
  for (std::uint64_t n = 0; n < 3000; ++n) {
    const auto random = core::philox(1, 0, n);
    AttentionProblem p{.batch = 1 + random[0] % 3,
                       .heads_q = 2,
                       .heads_kv = 1,
                       .len_q = random[1] % 40,
                       .len_k = random[2] % 40,
                       .dim_qk = 3,
                       .dim_v = 5};
    p.mask = drawn_mask(random[3] % 840, random[3] / 840);
    if (p.mask.alignment == Mask::Alignment::equal_lengths) p.len_k = p.len_q;
    std::int64_t pairs = 0;
    for (std::int64_t i = 0; i < p.len_q; ++i) {
      for (std::int64_t j = 0; j < p.len_k; ++j) pairs += visible(p, i, j);
    }
    ASSERT_EQ(visible_pairs(p), pairs) << p.len_q << " " << p.len_k << " " << core::text_of(p.mask);
    const double heads = static_cast<double>(p.batch * 2 * pairs);
    ASSERT_EQ(flops(p), heads * 2 * (3 + 5));
    p.pass = Pass::backward;
    ASSERT_EQ(flops(p), heads * 2 * (3 * 3 + 2 * 5));
  }
}

}  // namespace
}  // namespace fovea
