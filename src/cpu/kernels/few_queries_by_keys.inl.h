// Forward for up to eight query rows per key head, as in decoding: each row of K and V is read once, where it lies.
// Scores have keys in the lanes, the output has head dimensions in the lanes. Otherwise as forward.inl.h.
#pragma once

#include "cpu/kernels/partials.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kFewKeys = 96;  // keys whose scores are held at once; a multiple of kLanes

struct DotScratch {
  Operand* q;              // [rows][k_steps], with the scale's sign; zero beyond dim_qk
  Operand* k;              // [kLanes][k_steps]: rows of K that cannot be read in place
  float* scores;           // [rows][kFewKeys]
  Operand* probabilities;  // [rows][kFewKeys / kPairs]
  char* v_tail;            // [kFewKeys][kLanes]: the last dim_v % kLanes columns of V, then zeros; V's type
  char* no_key;            // a row of zeros, the partner of the last key if keys come in pairs
  float* row;              // [padded dim_qk], one row of q
  float* exact;            // [kFewRows][kLanes], sums of P before rounding, if P is rounded
  float* limit;            // [kFewRows], the maximum rises if a score exceeds it
  Interval* seen;          // [kFewRows]
};

int64_t carve(const Shape& shape, char* base, DotScratch& s) {
  Scratch memory{base, 0};
  const int64_t rows = few_rows_of(shape), steps = few_steps(shape);
  s.q = memory.take<Operand>(rows * steps);
  s.k = memory.take<Operand>(kLanes * steps);
  s.scores = memory.take<float>(rows * kFewKeys);
  s.probabilities = memory.take<Operand>(rows * kFewKeys / kPairs);
  s.v_tail = memory.take<char>(kFewKeys * kLanes * 4);
  s.no_key = memory.take<char>(padded(shape.dim_v) * 4);
  s.row = memory.take<float>(round_up(padded(shape.dim_qk), kLanes * kPairs));
  s.exact = memory.take<float>(kFewRows * kLanes);
  s.limit = memory.take<float>(kFewRows);
  s.seen = memory.take<Interval>(kFewRows);
  return memory.used;
}

// Lane n of the result is the sum of x[n]'s lanes.
template <int kStep = 4>
FOVEA_INLINE Vec sum_across(Vec (&x)[kLanes]) {
  constexpr typename CountedLanes<kLanes>::List lanes;
  if constexpr (kStep == 4) {
    FOVEA_UNROLL for (int i = 0; i < kLanes / 4; ++i) {
      const Vec *const a = x + 4 * i, *const b = a + 1, *const c = a + 2, *const d = a + 3;
      const Vec ab = add(interleave<1, 0>(*a, *b, lanes), interleave<1, 2>(*a, *b, lanes));
      const Vec cd = add(interleave<1, 0>(*c, *d, lanes), interleave<1, 2>(*c, *d, lanes));
      x[i] = add(interleave<2, 0>(ab, cd, lanes), interleave<2, 2>(ab, cd, lanes));
    }
  }
  if constexpr (kStep < kLanes) {
    FOVEA_UNROLL for (int i = 0; i < kLanes / kStep / 2; ++i) {
      Vec upper = x[2 * i], lower = x[2 * i + 1];
      exchange<kStep>(upper, lower, lanes);
      x[i] = add(upper, lower);
    }
    return sum_across<2 * kStep>(x);
  }
  return x[0];
}

// The products of one query row with kLanes keys, whose rows are `stride` operands apart.
FOVEA_INLINE Vec score_keys(const Operand* q, const Operand* k, int64_t stride, int64_t steps) {
  Vec x[kLanes];
  FOVEA_UNROLL for (int i = 0; i < kLanes; ++i) x[i] = zero();
  for (int64_t s = 0; s < steps; s += kLanes) {
    const OperandVec row = load_operands(q + s);
    FOVEA_UNROLL for (int i = 0; i < kLanes; ++i) { x[i] = multiply_add(load_operands(k + i * stride + s), row, x[i]); }
  }
  return sum_across(x);
}

template <class Score>
void score_block(const FewQueriesTask& task, const DotScratch& s, int64_t first_key, int64_t keys) {
  const Shape& shape = *task.shape;
  const int64_t rows = few_rows_of(shape), steps = few_steps(shape);
  const bool in_place = keys_hold_operands(task) && shape.dim_qk == steps * kPairs;
  const LaterRows v = later_rows(task.v, shape.dim_v, first_key, task.far ? keys : 0);
  for (int64_t key = 0; key < keys; key += kLanes) {
    v.prefetch(key, key + kLanes);
    const Operand* k = s.k;
    int64_t stride = steps;
    if (in_place && key + kLanes <= keys) {
      stride = task.k.row_stride / kPairs;
      k = key_row(task, first_key + key);
    } else {
      copy_keys(task, first_key + key, smaller(kLanes, keys - key), kLanes, s.k);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const Vec x = score_keys(s.q + r * steps, k, stride, steps);
      store(s.scores + r * kFewKeys + key, Score::apply(shape, x, {r, first_key + key, true}));
    }
  }
}

// Raises a row's maximum to `largest`, and rescales what the earlier keys of the chunk contributed.
__attribute__((noinline)) void raise_row(const Shape& shape, const FewPartial& p, const DotScratch& s, int64_t r,
                                         Vec largest) {
  float lanes[kLanes];
  store(lanes, largest);
  float most = lanes[0];
  for (int i = 1; i < kLanes; ++i) most = lanes[i] > most ? lanes[i] : most;
  const Exponential exponential(shape.log2_scale);
  const bool first = p.maximum[r] == -kInfinity;
  const Vec lower = first ? zero() : exponential(broadcast(p.maximum[r] - most));
  float factor[kLanes];
  store(factor, lower);
  p.sum[r] *= factor[0];
  if (kBf16Dot) store(s.exact + r * kLanes, mul(load(s.exact + r * kLanes), lower));
  const int64_t dim = padded(shape.dim_v);
  for (int64_t d = 0; d < dim; d += kLanes) store(p.out + r * dim + d, mul(load(p.out + r * dim + d), lower));
  p.maximum[r] = most;
  s.limit[r] = most + kRescaleThreshold / shape.log2_scale;
}

// The keys of a block that a row sees, as floats that lanes compare positions with.
struct SeenLanes {
  Vec begin, end;

  SeenLanes(const Interval& seen, int64_t first_key)
      : begin(broadcast(static_cast<float>(larger(0, smaller(kFewKeys, seen.begin - first_key)) - 1))),
        end(broadcast(static_cast<float>(larger(0, smaller(kFewKeys, seen.end - first_key))))) {}
  FOVEA_INLINE Mask sees(int64_t key) const {
    float positions[kLanes];
    FOVEA_UNROLL for (int i = 0; i < kLanes; ++i) positions[i] = static_cast<float>(i);
    const Vec position = add(broadcast(static_cast<float>(key)), load(positions));
    return both(less(begin, position), less(position, end));
  }
};

// Online softmax of one row's scores of a block, padded to whole vectors.
void softmax_row(const Shape& shape, const FewPartial& p, const DotScratch& s, int64_t r, int64_t first_key,
                 int64_t keys) {
  float* const scores = s.scores + r * kFewKeys;
  const Interval seen{s.seen[r].begin, smaller(s.seen[r].end, first_key + keys)};
  const int64_t end = round_up(keys, kLanes);
  const bool whole = seen.begin <= first_key && first_key + end <= seen.end;
  const SeenLanes lanes(seen, first_key);
  Vec largest = broadcast(-kInfinity);
  for (int64_t key = 0; key < end; key += kLanes) {
    Vec x = load(scores + key);
    if (!whole) store(scores + key, x = select(lanes.sees(key), x, broadcast(-kInfinity)));
    largest = max(largest, x);
  }
  if (any(less(broadcast(s.limit[r]), largest))) raise_row(shape, p, s, r, largest);
  const Exponential exponential(shape.log2_scale);
  const Vec maximum = broadcast(p.maximum[r] == -kInfinity ? 0.0f : p.maximum[r]);
  Vec exact = zero();
  for (int64_t key = 0; key < end; key += kLanes) {
    Vec x = exponential(sub(load(scores + key), maximum));
    if (!whole) x = select(lanes.sees(key), x, zero());
    exact = add(exact, x);
    store_query_operands(s.probabilities + r * (kFewKeys / kPairs), key, x);
  }
  if (kBf16Dot) store(s.exact + r * kLanes, add(load(s.exact + r * kLanes), exact));
}

// Rows of V, in their own type. kPairs keys and kLanes columns form a vector of operands.
struct ValueRows {
  const char* data;    // of the block's first key
  int64_t stride;      // bytes
  const char* no_key;  // zeros, the partner of a last key without one
  int64_t keys;
  LaterRows later;  // the next block's rows of K
};

// A register tile of the output: M rows, N vectors of columns. Even and odd steps have accumulators of their own, so
// that enough multiply-adds are independent. P is summed in the same order: if all values are 1, out is exactly 1.
template <int M, int N, Element kElement>
struct ValueTile {
  static constexpr int64_t kWidth = kElement == Element::fp32 ? 4 : 2, kRowStride = kFewKeys / kPairs;
  Vec x[M][N], sums[M][1];

  FOVEA_INLINE void add_step(const Operand* probabilities, const char* data, const char* partner) {
    OperandVec values[N];
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      const int64_t at = n * kLanes * kWidth;
      values[n] = load_key_operands<kElement>(data + at, partner + at);
    }
    FOVEA_UNROLL for (int m = 0; m < M; ++m) {
      const OperandVec weight = broadcast_operand(probabilities + m * kRowStride);
      sums[m][0] = add_operands(sums[m][0], weight);
      FOVEA_UNROLL for (int n = 0; n < N; ++n) x[m][n] = multiply_add(weight, values[n], x[m][n]);
    }
  }
};

// Adds the products of M rows of P, from `row` on, with the columns of a block of V to out; to sums the sums of P.
template <int M, int N, Element kElement>
void add_values(const DotScratch& s, int64_t row, const ValueRows& v, float* out, int64_t out_stride, float* sums) {
  using Tile = ValueTile<M, N, kElement>;
  Tile even, odd;
  clear(even.x), clear(odd.x), clear(even.sums), clear(odd.sums);
  const Operand* probabilities = s.probabilities + row * Tile::kRowStride;
  const char* data = v.data;
  const int64_t step = kPairs * v.stride;
  int64_t left = v.keys;
  for (; left >= 2 * kPairs; left -= 2 * kPairs, data += 2 * step, probabilities += 2) {
    if (v.later.count > 0) v.later.prefetch(v.keys - left, v.keys - left + 2 * kPairs);
    even.add_step(probabilities, data, data + v.stride);
    odd.add_step(probabilities + 1, data + step, data + step + v.stride);
  }
  if (left > 0) even.add_step(probabilities, data, left >= kPairs ? data + v.stride : v.no_key);
  if (left > kPairs) odd.add_step(probabilities + 1, data + step, v.no_key);
  FOVEA_UNROLL for (int m = 0; m < M; ++m) {
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      float* const to = out + m * out_stride + n * kLanes;
      store(to, add(load(to), add(even.x[m][n], odd.x[m][n])));
    }
    if (sums == nullptr) continue;
    float sum[kLanes];
    store(sum, add(broadcast(sums[m]), add(even.sums[m][0], odd.sums[m][0])));
    sums[m] = sum[0];
  }
}

// All columns of M rows: N vectors at a time, then one, then the columns that do not fill a vector.
template <int M, int N, Element kElement>
void add_columns(const FewQueriesTask& task, const FewPartial& p, const DotScratch& s, int64_t row, ValueRows v) {
  constexpr int64_t kWidth = kElement == Element::fp32 ? 4 : 2;
  const int64_t dim = task.shape->dim_v, stride = padded(dim);
  float* const out = p.out + row * stride;
  float* sums = p.sum + row;
  int64_t d = 0;
  for (; d + N * kLanes <= dim; d += N * kLanes, v.data += N * kLanes * kWidth, sums = nullptr, v.later.count = 0)
    add_values<M, N, kElement>(s, row, v, out + d, stride, sums);
  for (; d + kLanes <= dim; d += kLanes, v.data += kLanes * kWidth, sums = nullptr)
    add_values<M, 1, kElement>(s, row, v, out + d, stride, sums);
  if (d == dim) return;
  const ValueRows tail{s.v_tail, kLanes * kWidth, v.no_key, v.keys, v.later};
  add_values<M, 1, kElement>(s, row, tail, out + d, stride, sums);
}

// Copies the columns of V that do not fill a vector, with zeros behind them.
void copy_tail(const ValueRows& v, int64_t dim, int64_t width, char* to) {
  const int64_t bytes = dim % kLanes * width;
  const char* from = v.data + (dim * width - bytes);
  for (int64_t key = 0; bytes > 0 && key < v.keys; ++key, from += v.stride, to += kLanes * width) {
    __builtin_memcpy(to, from, static_cast<uint64_t>(bytes));
    __builtin_memset(to + bytes, 0, static_cast<uint64_t>(kLanes * width - bytes));
  }
}

// out += P V for a block of keys.
template <Element kElement>
void value_block(const FewQueriesTask& task, const FewPartial& p, const DotScratch& s, int64_t first_key,
                 int64_t keys) {
  constexpr int64_t kWidth = kElement == Element::fp32 ? 4 : 2;
  const int64_t rows = few_rows_of(*task.shape), stride = task.v.row_stride * kWidth;
  const int64_t next = smaller(kFewKeys, task.first_key + task.keys - first_key - keys);
  ValueRows v{static_cast<const char*>(task.v.data) + first_key * stride, stride, s.no_key, keys,
              later_rows(task.k, task.shape->dim_qk, first_key + keys, task.far ? next : 0)};
  copy_tail(v, task.shape->dim_v, kWidth, s.v_tail);
  int64_t row = 0;
  if constexpr (kManyRegisters) {
    for (; row + 4 <= rows; row += 4, v.later.count = 0) add_columns<4, 2, kElement>(task, p, s, row, v);
  }
  for (; row + 2 <= rows; row += 2, v.later.count = 0)
    add_columns<2, kManyRegisters ? 4 : 2, kElement>(task, p, s, row, v);
  if (row < rows) add_columns<1, 4, kElement>(task, p, s, row, v);
}

// Kernels for one type do without the others.
template <bool kOneType>
void value_block_of(const FewQueriesTask& task, const FewPartial& p, const DotScratch& s, int64_t first_key,
                    int64_t keys) {
  if constexpr (kOneType) {
    value_block<Element::bf16>(task, p, s, first_key, keys);
  } else if (task.v.element == Element::fp32) {
    value_block<Element::fp32>(task, p, s, first_key, keys);
  } else if (task.v.element == Element::bf16) {
    value_block<Element::bf16>(task, p, s, first_key, keys);
  } else {
    value_block<Element::fp16>(task, p, s, first_key, keys);
  }
}

void begin_rows(const FewQueriesTask& task, const FewPartial& p, const DotScratch& s) {
  const Shape& shape = *task.shape;
  const int64_t steps = few_steps(shape), dim = steps * kPairs, rows = few_rows_of(shape);
  const Vec sign = broadcast(shape.sign);
  for (int64_t r = 0; r < rows; ++r) {
    read_rows(task.q, shape.group, r, 1, shape.dim_qk, s.row, 1, dim);
    for (int64_t d = 0; d < dim; d += kLanes) {
      store_query_operands(s.q + r * steps, d, mul(load(s.row + d), sign));
    }
    s.seen[r] = visible_keys(shape, r);
    s.limit[r] = p.maximum[r] = -kInfinity;
    p.sum[r] = p.exact[r] = 0;
    store(s.exact + r * kLanes, zero());
  }
  for (int64_t i = 0; i < rows * padded(shape.dim_v); i += kLanes) store(p.out + i, zero());
  for (int64_t i = 0; i < padded(shape.dim_v); i += kLanes) store(reinterpret_cast<float*>(s.no_key) + i, zero());
}

// One chunk of keys.
template <class Score>
bool attend_by_keys(const FewQueriesTask& task) {
  FewPartial p;
  DotScratch s;
  carve(*task.shape, reinterpret_cast<char*>(task.partial), p);
  carve(*task.shape, static_cast<char*>(task.scratch), s);
  begin_rows(task, p, s);
  const int64_t rows = few_rows_of(*task.shape), end = task.first_key + task.keys;
  for (int64_t key = task.first_key; key < end; key += kFewKeys) {
    if (task.cancel.raised(task.cancel.flag)) return false;
    const int64_t keys = smaller(kFewKeys, end - key);
    score_block<Score>(task, s, key, keys);
    for (int64_t r = 0; r < rows; ++r) softmax_row(*task.shape, p, s, r, key, keys);
    value_block_of<kBf16Dot>(task, p, s, key, keys);
  }
  for (int64_t i = 0; kBf16Dot && i < rows * kLanes; ++i) p.exact[i / kLanes] += s.exact[i];
  return true;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
