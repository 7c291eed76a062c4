// The number of elements of a problem's tensors.
#pragma once

#include <cstdint>

#include "fovea/problem.h"

namespace fovea::baselines {

struct Counts {
  std::int64_t q, k, v, out, rows, pairs;
};

inline Counts counts_of(const AttentionProblem& p) {
  const std::int64_t rows = p.batch * p.heads_q * p.len_q, keys = p.batch * p.heads_kv * p.len_k;
  return {rows * p.dim_qk, keys * p.dim_qk, keys * p.dim_v, rows * p.dim_v, rows, rows * p.len_k};
}

}  // namespace fovea::baselines
