// The score matrix [batch, heads_q, len_q, len_k] in memory, and which part of a row the mask leaves visible.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fovea/problem.h"

namespace fovea::baselines {

// Element (batch, head, row, 0) of a dense score matrix.
inline std::int64_t score_index(const AttentionProblem& p, std::int64_t batch, std::int64_t head, std::int64_t row) {
  return ((batch * p.heads_q + head) * p.len_q + row) * p.len_k;
}

struct VisibleKeys {
  std::int64_t begin, end;
};

inline VisibleKeys visible_keys(const AttentionProblem& p, std::int64_t row) {
  const auto [begin, end] = key_window(p);
  const std::int64_t last = std::clamp<std::int64_t>(row + end, 0, p.len_k);
  return {std::clamp<std::int64_t>(row + begin, 0, last), last};
}

}  // namespace fovea::baselines
