// The three kinds of matrix products of attention, for all heads at once.
#pragma once

#include <cstdint>
#include <type_traits>

#include "baselines/cuda/call.h"

namespace fovea::cuda::baselines {

// Matrices [len, dim] or [len_q, len_k], one per (batch, head). Strides count elements; columns are contiguous.
template <class Pointer>
struct BasicMatrices {
  Pointer data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0;

  BasicMatrices from(std::int64_t first_batch, std::int64_t first_head) const {
    return advanced(first_batch * batch_stride + first_head * head_stride);
  }
  BasicMatrices within(std::int64_t first_row, std::int64_t first_column = 0) const {
    return advanced(first_row * row_stride + first_column);
  }
  operator BasicMatrices<const void*>() const requires(!std::is_same_v<Pointer, const void*>) {
    return {data, dtype, batch_stride, head_stride, row_stride};
  }

 private:
  BasicMatrices advanced(std::int64_t elements) const {
    using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, char, const char>;
    BasicMatrices rest = *this;
    rest.data = static_cast<Byte*>(data) + elements * size_of(dtype);
    return rest;
  }
};
using Matrices = BasicMatrices<void*>;
using ConstMatrices = BasicMatrices<const void*>;

// scores[h] = rows[h] keys[h / group]^T: [len_q, dim] times [dim, len_k].
void multiply_by_keys(const Call& call, const ConstMatrices& rows, const ConstMatrices& keys, std::int64_t dim,
                      const Matrices& scores);

// result[h] = factor * pair_matrix[h] values[h / group]: [len_q, len_k] times [len_k, dim]. Adds to `result` if
// `accumulate`. A pair matrix is P or dS.
void sum_over_keys(const Call& call, float factor, const ConstMatrices& pair_matrix, const ConstMatrices& values,
                   std::int64_t dim, const Matrices& result, bool accumulate);

// result[key head] = factor * sum over its group of pair_matrix[h]^T rows[h]: [len_k, len_q] times [len_q, dim].
void sum_over_queries(const Call& call, float factor, const ConstMatrices& pair_matrix, const ConstMatrices& rows,
                      std::int64_t dim, const Matrices& result, bool accumulate);

// Whether sum_over_queries adds a group's members one after the other instead of in one product. Its result should then
// be fp32: a 16-bit one would be rounded after each member.
bool adds_members_separately(const AttentionProblem& problem, const ConstMatrices& rows);

}  // namespace fovea::cuda::baselines
