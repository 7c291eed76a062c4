// Bundles: how few query rows share the lanes of a vector, and what each bundle keeps while its rows attend to a chunk.
//
// A bundle has kWidth rows, a power of two, and kParts = kLanes / kWidth lanes for each. Lane n belongs to row
// n / kParts. In a product with a key it holds every kParts-th product, from step n % kParts on. In a vector of scores
// it holds key n % kParts of kParts keys.
#pragma once

#include "cpu/kernels/partials.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kFewKeys = 96;  // keys whose scores are held at once; a multiple of kLanes

struct Bundle {
  int64_t first_row, rows, width;  // rows that exist, at most width
  Interval common;                 // keys that all rows see
  Operand* q;                      // [steps / parts][kLanes], with the scale's sign; zero beyond dim_qk
  float* scores;                   // [kFewKeys / parts][kLanes]
  Operand* probabilities;          // [kFewKeys / parts][width][parts / kPairs]
  float* maximum;                  // [kLanes], subtracted from unscaled scores; 0 before the first score
  float* limit;                    // [kLanes], the maximum rises if a score exceeds it; -infinity before the first
  float* exact;                    // [kLanes], sums of P before rounding, if P is rounded
};

struct BundleScratch {
  Bundle* bundles;
  int64_t count;
  Operand* k;         // [kLanes][steps]: rows of K that cannot be read in place
  char* v_tail;       // [kFewKeys][kLanes]: the last dim_v % kLanes columns of V, then zeros; V's type
  char* no_key;       // a row of zeros, the partner of the last key if keys come in pairs
  float* row;         // [steps * kPairs], one row of q
  Operand* operands;  // [steps], the same as operands
};

int64_t carve(const Shape& shape, char* base, BundleScratch& s) {
  Scratch memory{base, 0};
  const int64_t rows = few_rows_of(shape), steps = few_steps(shape);
  s.bundles = memory.take<Bundle>(kFewRows);
  s.count = 0;
  for (int64_t row = 0; row < rows;) {
    Bundle b{};
    b.first_row = row;
    b.width = bundle_width(rows, rows - row);
    b.rows = smaller(b.width, rows - row);
    b.q = memory.take<Operand>(b.width * steps);
    b.scores = memory.take<float>(b.width * kFewKeys);
    b.probabilities = memory.take<Operand>(b.width * kFewKeys / kPairs);
    b.maximum = memory.take<float>(kLanes);
    b.limit = memory.take<float>(kLanes);
    b.exact = memory.take<float>(kLanes);
    if (base != nullptr) s.bundles[s.count] = b;
    ++s.count;
    row += b.rows;
  }
  s.k = memory.take<Operand>(kLanes * steps);
  s.v_tail = memory.take<char>(kFewKeys * kLanes * 4);
  s.no_key = memory.take<char>(padded(shape.dim_v) * 4);
  s.row = memory.take<float>(steps * kPairs);
  s.operands = memory.take<Operand>(steps);
  return memory.used;
}

template <int kValue>
struct Width {
  static constexpr int kWidth = kValue;
};

// Calls work(Width<kWidth>{}) with the constant that equals `width`.
template <int kWidth = kWidestBundle, class Work>
FOVEA_INLINE void with_width(int64_t width, const Work& work) {
  if constexpr (kWidth == 1) {
    work(Width<1>{});
  } else if (width == kWidth) {
    work(Width<kWidth>{});
  } else {
    with_width<kWidth / 2>(width, work);
  }
}

// Interleaves the steps of a row's operands with those of the bundle's other rows.
template <int kWidth>
void pack_row(const Operand* from, int64_t steps, int64_t row, Operand* to) {
  constexpr int kParts = kLanes / kWidth;
  to += row * kParts;
  for (int64_t step = 0; step < steps; step += kParts, to += kLanes)
    __builtin_memcpy(to, from + step, kParts * sizeof(Operand));
}

void begin_bundle(const FewQueriesTask& task, const FewPartial& p, const BundleScratch& s, Bundle& b) {
  const Shape& shape = *task.shape;
  const int64_t steps = few_steps(shape), dim = steps * kPairs;
  const Vec sign = broadcast(shape.sign);
  b.common = {0, shape.len_k};
  for (int64_t r = 0; r < b.width; ++r) {
    if (r < b.rows) {
      read_rows(task.q, shape.group, b.first_row + r, 1, shape.dim_qk, s.row, 1, dim);
      for (int64_t d = 0; d < dim; d += kLanes) store_query_operands(s.operands, d, mul(load(s.row + d), sign));
      const Interval seen = visible_keys(shape, b.first_row + r);
      b.common = {larger(b.common.begin, seen.begin), smaller(b.common.end, seen.end)};
    } else {
      for (int64_t d = 0; d < dim; d += kLanes) store_query_operands(s.operands, d, zero());
    }
    with_width(b.width, [&](auto width) { pack_row<width.kWidth>(s.operands, steps, r, b.q); });
  }
  store(b.maximum, zero());
  store(b.limit, broadcast(-kInfinity));
  store(b.exact, zero());
  const int64_t stride = padded(shape.dim_v);
  for (int64_t r = b.first_row; r < b.first_row + b.width; ++r) {
    p.sum[r] = 0;
    for (int64_t d = 0; d < stride; d += kLanes) store(p.out + r * stride + d, zero());
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
