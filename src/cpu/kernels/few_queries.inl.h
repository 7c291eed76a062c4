// Forward for few query rows per key head: up to eight with keys in the lanes, more with queries in the lanes.
#pragma once

#include "cpu/kernels/few_queries_by_keys.inl.h"
#include "cpu/kernels/few_queries_by_rows.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kFewChunkStep = 2 * kKeyBlock;
static_assert(kFewChunkStep % kFewKeys == 0 && kFewChunkStep % kKeyBlock == 0);

constexpr int64_t kMostRowsByKeys = kQueries < kFewRows ? kFewRows : 12;

// One chunk of keys.
template <class Score>
bool few_queries(const FewQueriesTask& task) {
  return few_rows_of(*task.shape) <= kMostRowsByKeys ? attend_by_keys<Score>(task) : attend_by_rows<Score>(task);
}

int64_t few_partial_bytes(const Shape& shape) {
  FewPartial unused;
  return carve(shape, nullptr, unused);
}

int64_t few_scratch_bytes(const Shape& shape) {
  DotScratch by_keys;
  RowScratch by_rows;
  const int64_t combine = padded(shape.dim_v) * static_cast<int64_t>(sizeof(float));
  const int64_t task =
      few_rows_of(shape) <= kMostRowsByKeys ? carve(shape, nullptr, by_keys) : carve(shape, nullptr, by_rows);
  return larger(combine, task);
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
