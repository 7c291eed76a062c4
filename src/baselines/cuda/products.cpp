// Folds the heads of a group into the rows of one product if their rows have one stride. Strided batches cover the
// other dimensions.
#include "baselines/cuda/products.h"

#include <algorithm>

#include "linear/cuda/matrix_library.h"
#include "linear/strided_batches.h"

namespace fovea::cuda::baselines {
namespace {

using linear::BatchedProduct;
using linear::MatrixBatch;
using linear::Spread;
using linear::StridedBatch;

// Terms of one sum of 16-bit products: tensor cores truncate the sum's low bits. With 128 terms, odd dimensions and
// lengths missed the bound (docs/kernels/baselines.md).
std::int64_t chain_of(std::int64_t dim, std::int64_t len_k) { return dim % 128 == 0 && len_k % 8 == 0 ? 128 : 64; }

std::int64_t group_of(const AttentionProblem& p) { return p.heads_q / p.heads_kv; }

// The strides of a tensor with query heads, and of one with key heads.
Spread query_spread(const AttentionProblem& p, const ConstMatrices& m) {
  return {m.batch_stride, group_of(p) * m.head_stride, group_of(p) > 1 ? m.head_stride : 0};
}
Spread key_spread(const ConstMatrices& m) { return {m.batch_stride, m.head_stride, 0}; }

// Whether the rows of a group's heads are one long matrix.
bool folds(const AttentionProblem& p, const ConstMatrices& m) {
  return group_of(p) == 1 || m.head_stride == p.len_q * m.row_stride;
}

MatrixBatch matrix(const ConstMatrices& m, std::int64_t first, std::int64_t batch_stride, bool transposed = false) {
  return {static_cast<const char*>(m.data) + first * size_of(m.dtype), m.dtype, m.row_stride, batch_stride, transposed};
}

struct Operand {
  ConstMatrices matrices;
  Spread spread;
  bool transposed = false;
};

// Computes all products of one shape, `members` for each group.
void multiply_all(const Call& call, BatchedProduct product, std::int64_t members, const Operand& a, const Operand& b,
                  const Operand& c) {
  const AttentionProblem& p = call.problem;
  const float beta = product.beta;
  for (const StridedBatch& part :
       linear::strided_batches({p.batch, p.heads_kv, members}, a.spread, b.spread, c.spread)) {
    product.count = part.count;
    product.a = matrix(a.matrices, part.a, part.a_batch_stride, a.transposed);
    product.b = matrix(b.matrices, part.b, part.b_batch_stride, b.transposed);
    product.c = matrix(c.matrices, part.c, part.c_batch_stride);
    product.beta = part.adds ? 1.0f : beta;
    multiply(product, call.stream, call.products);
  }
}

}  // namespace

void multiply_by_keys(const Call& call, const ConstMatrices& rows, const ConstMatrices& keys, std::int64_t dim,
                      const Matrices& scores) {
  const AttentionProblem& p = call.problem;
  const std::int64_t folded = folds(p, rows) && folds(p, scores) ? group_of(p) : 1;
  const std::int64_t chain = rows.dtype == DType::fp32 ? dim : std::min(dim, chain_of(dim, p.len_k));
  for (std::int64_t first = 0; first < dim; first += chain) {
    multiply_all(
        call,
        {.m = folded * p.len_q, .n = p.len_k, .k = std::min(chain, dim - first), .beta = first == 0 ? 0.0f : 1.0f},
        group_of(p) / folded, {rows.within(0, first), query_spread(p, rows)},
        {keys.within(0, first), key_spread(keys), true}, {scores, query_spread(p, scores)});
  }
}

void sum_over_keys(const Call& call, float factor, const ConstMatrices& pair_matrix, const ConstMatrices& values,
                   std::int64_t dim, const Matrices& result, bool accumulate) {
  const AttentionProblem& p = call.problem;
  const std::int64_t folded = folds(p, pair_matrix) && folds(p, result) ? group_of(p) : 1;
  multiply_all(call, {.m = folded * p.len_q, .n = dim, .k = p.len_k, .alpha = factor, .beta = accumulate ? 1.0f : 0.0f},
               group_of(p) / folded, {pair_matrix, query_spread(p, pair_matrix)}, {values, key_spread(values)},
               {result, query_spread(p, result)});
}

void sum_over_queries(const Call& call, float factor, const ConstMatrices& pair_matrix, const ConstMatrices& rows,
                      std::int64_t dim, const Matrices& result, bool accumulate) {
  const AttentionProblem& p = call.problem;
  const std::int64_t folded = adds_members_separately(p, rows) ? 1 : group_of(p);
  multiply_all(call, {.m = p.len_k, .n = dim, .k = folded * p.len_q, .alpha = factor, .beta = accumulate ? 1.0f : 0.0f},
               group_of(p) / folded, {pair_matrix, query_spread(p, pair_matrix), true}, {rows, query_spread(p, rows)},
               {result, key_spread(result)});
}

// Only `rows` decides: pair matrices are dense, so they always fold.
bool adds_members_separately(const AttentionProblem& p, const ConstMatrices& rows) { return !folds(p, rows); }

}  // namespace fovea::cuda::baselines
