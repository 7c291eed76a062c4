// The three kinds of matrix products of attention, for all heads at once.
#pragma once

#include <cstdint>

#include "baselines/cuda/call.h"

namespace fovea::cuda::baselines {

// Matrices [len, dim] or [len_q, len_k], one per (batch, head). Strides count elements; columns are contiguous.
struct Matrices {
  const void* data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t batch = 0, head = 0, row = 0;

  Matrices from(std::int64_t first_batch, std::int64_t first_head) const {
    return past(first_batch * batch + first_head * head);
  }
  Matrices within(std::int64_t first_row, std::int64_t first_column = 0) const {
    return past(first_row * row + first_column);
  }

 private:
  Matrices past(std::int64_t elements) const {
    Matrices rest = *this;
    rest.data = static_cast<const char*>(data) + elements * size_of(dtype);
    return rest;
  }
};

// scores[h] = rows[h] keys[h / group]^T: [len_q, dim] times [dim, len_k].
void multiply_by_keys(const Call& call, const Matrices& rows, const Matrices& keys, std::int64_t dim,
                      const Matrices& scores);

// result[h] = factor * pair_matrix[h] values[h / group]: [len_q, len_k] times [len_k, dim]. Adds to `result` if
// `accumulate`. A pair matrix is P or dS.
void sum_over_keys(const Call& call, float factor, const Matrices& pair_matrix, const Matrices& values,
                   std::int64_t dim, const Matrices& result, bool accumulate);

// result[key head] = factor * sum over its group of pair_matrix[h]^T rows[h]: [len_k, len_q] times [len_q, dim].
void sum_over_queries(const Call& call, float factor, const Matrices& pair_matrix, const Matrices& rows,
                      std::int64_t dim, const Matrices& result, bool accumulate);

// Whether sum_over_queries adds a group's members one after the other instead of in one product. A 16-bit result would
// be rounded after each.
bool adds_members_apart(const AttentionProblem& problem, const Matrices& rows);

}  // namespace fovea::cuda::baselines
