// Forward for up to 16 query rows per key head, as in decoding: each row of K and V is read once, where it lies.
// Otherwise as forward.inl.h.
#pragma once

#include "cpu/kernels/few_queries_scores.inl.h"
#include "cpu/kernels/few_queries_values.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kFewChunkStep = 2 * kFewKeys;
static_assert(kFewKeys % kLanes == 0);

void finish_bundle(const Bundle& b, const FewPartial& p) {
  const int64_t parts = kLanes / b.width;
  for (int64_t r = 0; r < b.rows; ++r) {
    const int64_t lane = r * parts, row = b.first_row + r;
    p.maximum[row] = b.limit[lane] == -kInfinity ? -kInfinity : b.maximum[lane];
    p.exact[row] = 0;
    for (int64_t i = 0; i < parts; ++i) p.exact[row] += b.exact[lane + i];
  }
}

// One chunk of keys.
template <class Score>
bool few_queries(const FewQueriesTask& task) {
  const Shape& shape = *task.shape;
  FewPartial p;
  BundleScratch s;
  carve(shape, reinterpret_cast<char*>(task.partial), p);
  carve(shape, static_cast<char*>(task.scratch), s);
  for (int64_t i = 0; i < s.count; ++i) begin_bundle(task, p, s, s.bundles[i]);
  for (int64_t i = 0; i < padded(shape.dim_v); i += kLanes) store(reinterpret_cast<float*>(s.no_key) + i, zero());
  const int64_t end = task.first_key + task.keys;
  for (int64_t key = task.first_key; key < end; key += kFewKeys) {
    if (task.cancel.raised(task.cancel.flag)) return false;
    const int64_t keys = smaller(kFewKeys, end - key);
    score_block<Score>(task, s, key, keys);
    for (int64_t i = 0; i < s.count; ++i) softmax_block(shape, p, s.bundles[i], key, keys);
    value_block_of<kBf16Dot>(task, p, s, key, keys);
  }
  for (int64_t i = 0; i < s.count; ++i) finish_bundle(s.bundles[i], p);
  return true;
}

int64_t few_partial_bytes(const Shape& shape) {
  FewPartial unused;
  return carve(shape, nullptr, unused);
}

int64_t few_scratch_bytes(const Shape& shape) {
  BundleScratch unused;
  return larger(padded(shape.dim_v) * static_cast<int64_t>(sizeof(float)), carve(shape, nullptr, unused));
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
