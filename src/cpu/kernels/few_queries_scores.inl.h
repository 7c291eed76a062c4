// Scores and online softmax of a block of keys for few query rows. Rows of K are read where they lie.
#pragma once

#include "cpu/kernels/bundles.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// Bundles of one width that are multiplied together, by keys that are loaded once. With more than four keys at a time
// the processor no longer sees that rows follow each other. But 8 or 16 rows take long enough for prefetches to come in
// time. There loads count: two bundles share those of K, eight keys those of Q.
template <int kRows, int kCount>
struct Together {
  static constexpr int kWidth = kRows, kBundles = kCount, kParts = kLanes / kWidth;
  static constexpr int kKeys = kManyRegisters && (kBundles > 1 || kParts <= 2) ? 8 : 4;
  static constexpr int kSums = kBundles > 1 || kKeys > 4 ? 1 : 2;  // of a score, so that enough products run at once
  static constexpr int kStep = kSums * kParts;
};

// Rows of K that hold operands.
struct OperandKeys {
  const Operand* data;
  int64_t stride;

  template <int kParts>
  FOVEA_INLINE OperandVec load_parts(int64_t key, int64_t step) const {
    return repeat_operands<kParts>(data + key * stride + step);
  }
  template <class Group>
  FOVEA_INLINE void prefetch(int64_t, int) const {}
};

// The same, beyond the caches. Rows some KB behind are prefetched as fast as these are multiplied.
struct FarKeys : OperandKeys {
  LaterRows& later;

  // At steps [step, step + kStep) of row `i` of kKeys rows: as many lines as these have, or a line now and then.
  template <class Group>
  FOVEA_INLINE void prefetch(int64_t step, int i) const {
    constexpr int kLine = 16, kKeys = Group::kKeys, kStep = Group::kStep;  // kLine: operands of a cache line
    if (kStep * kKeys < kLine ? i == 0 && step % (kLine / kKeys) == 0 : i * kStep % kLine == 0)
      later.prefetch(kStep > kLine ? kStep / kLine : 1);
  }
};

// Rows that are widened while they are loaded.
template <Element kElement>
struct WidenedKeys {
  const uint16_t* data;
  int64_t stride;

  template <int kParts>
  FOVEA_INLINE OperandVec load_parts(int64_t key, int64_t step) const {
    static_assert(kParts == kLanes);
    const auto* const p = reinterpret_cast<const char*>(data + key * stride + step);
    return load_key_operands<kElement>(p, p);
  }
  template <class Group>
  FOVEA_INLINE void prefetch(int64_t, int) const {}
};

template <int kStep>
FOVEA_INLINE Vec add_exchanged(Vec upper, Vec lower) {
  exchange<kStep>(upper, lower, typename CountedLanes<kLanes>::List{});
  return add(upper, lower);
}

// x[n] has the products of key n. Leaves kLanes / kParts vectors of scores.
template <int kParts>
FOVEA_INLINE void sum_parts(Vec (&x)[kLanes]) {
  constexpr typename CountedLanes<kLanes>::List lanes;
  if constexpr (kParts == 2) {
    FOVEA_UNROLL for (int i = 0; i < kLanes / 2; ++i) x[i] = add_exchanged<1>(x[2 * i], x[2 * i + 1]);
  }
  if constexpr (kParts >= 4) {
    FOVEA_UNROLL for (int i = 0; i < kLanes / 4; ++i) {
      const Vec *const a = x + 4 * i, *const b = a + 1, *const c = a + 2, *const d = a + 3;
      const Vec ab = add(interleave<1, 0>(*a, *b, lanes), interleave<1, 2>(*a, *b, lanes));
      const Vec cd = add(interleave<1, 0>(*c, *d, lanes), interleave<1, 2>(*c, *d, lanes));
      x[i] = add(interleave<2, 0>(ab, cd, lanes), interleave<2, 2>(ab, cd, lanes));
    }
  }
  if constexpr (kParts >= 8) {
    FOVEA_UNROLL for (int i = 0; i < kLanes / 8; ++i) x[i] = add_exchanged<4>(x[2 * i], x[2 * i + 1]);
  }
  if constexpr (kParts >= 16) {
    FOVEA_UNROLL for (int i = 0; i < kLanes / 16; ++i) x[i] = add_exchanged<8>(x[2 * i], x[2 * i + 1]);
  }
}

// The scores of kLanes keys, of the bundles from `b` on.
template <class Group, class Score, class Keys>
void score_keys(const Shape& shape, const Bundle* b, const Keys& k, int64_t first_key, int64_t key) {
  constexpr int kBundles = Group::kBundles, kParts = Group::kParts, kKeys = Group::kKeys, kSums = Group::kSums;
  const int64_t steps = few_steps(shape);
  Vec x[kBundles][kLanes];
  FOVEA_UNROLL for (int first = 0; first < kLanes; first += kKeys) {
    Vec sums[kBundles][kKeys][kSums];
    FOVEA_UNROLL for (int m = 0; m < kBundles; ++m) clear(sums[m]);
    int64_t step = 0;
    for (; step + Group::kStep <= steps; step += Group::kStep) {
      OperandVec queries[kBundles][kSums];
      FOVEA_UNROLL for (int m = 0; m < kBundles; ++m) {
        FOVEA_UNROLL for (int n = 0; n < kSums; ++n) {
          queries[m][n] = load_operands(b[m].q + step * Group::kWidth + n * kLanes);
        }
      }
      FOVEA_UNROLL for (int i = 0; i < kKeys; ++i) {
        FOVEA_UNROLL for (int n = 0; n < kSums; ++n) {
          const OperandVec parts = k.template load_parts<kParts>(first + i, step + n * kParts);
          FOVEA_UNROLL for (int m = 0; m < kBundles; ++m) {
            sums[m][i][n] = multiply_add(parts, queries[m][n], sums[m][i][n]);
          }
        }
        k.template prefetch<Group>(step, i);
      }
    }
    if (step < steps) {
      FOVEA_UNROLL for (int i = 0; i < kKeys; ++i) {
        const OperandVec parts = k.template load_parts<kParts>(first + i, step);
        FOVEA_UNROLL for (int m = 0; m < kBundles; ++m) {
          sums[m][i][0] = multiply_add(parts, load_operands(b[m].q + step * Group::kWidth), sums[m][i][0]);
        }
        k.template prefetch<Group>(step, i);
      }
    }
    FOVEA_UNROLL for (int m = 0; m < kBundles; ++m) {
      FOVEA_UNROLL for (int i = 0; i < kKeys; ++i) {
        x[m][first + i] = kSums > 1 ? add(sums[m][i][0], sums[m][i][kSums - 1]) : sums[m][i][0];
      }
    }
  }
  FOVEA_UNROLL for (int m = 0; m < kBundles; ++m) {
    sum_parts<kParts>(x[m]);
    float* const scores = b[m].scores + key * Group::kWidth;
    FOVEA_UNROLL for (int i = 0; i < Group::kWidth; ++i) {
      store(scores + i * kLanes, Score::apply(shape, x[m][i], {b[m].first_row, first_key + key + i * kParts, kParts}));
    }
  }
}

// The scores of kLanes keys, of all bundles. The first ones prefetch.
template <class Score, class Keys>
void score_bundles(const FewQueriesTask& task, const BundleScratch& s, const Keys& k, int64_t first_key, int64_t key) {
  for (int64_t i = 0; i < s.count;) {
    const Bundle* const b = s.bundles + i;
    const bool two = i + 1 < s.count && b[1].width == b->width;
    with_width(b->width, [&](auto width) {
      using One = Together<width.kWidth, 1>;
      using Two = Together<width.kWidth, 2>;
      if (two && i == 0)
        score_keys<Two, Score>(*task.shape, b, k, first_key, key);
      else if (two)
        score_keys<Two, Score, OperandKeys>(*task.shape, b, k, first_key, key);
      else if (i == 0)
        score_keys<One, Score>(*task.shape, b, k, first_key, key);
      else
        score_keys<One, Score, OperandKeys>(*task.shape, b, k, first_key, key);
    });
    i += two ? 2 : 1;
  }
}

// Whether the task's rows of K hold operands, so that kernels may read them in place.
bool keys_hold_operands(const FewQueriesTask& task) {
  return (kBf16Dot || task.k.element == Element::fp32) && task.k.row_stride % kPairs == 0;
}

// Copies `count` rows of K as operands, with zeros beyond dim_qk and in the rows up to kLanes.
void copy_keys(const FewQueriesTask& task, int64_t first, int64_t count, Operand* to) {
  const int64_t dim = task.shape->dim_qk, steps = few_steps(*task.shape);
  if (kPairs == 1) return read_rows(task.k, 1, first, count, dim, reinterpret_cast<float*>(to), kLanes, steps);
  for (int64_t i = 0; i < kLanes; ++i, to += steps) {
    const auto bytes = static_cast<uint64_t>(i < count ? dim * 2 : 0);
    const auto* row = static_cast<const uint16_t*>(task.k.data) + (first + i) * task.k.row_stride;
    if (bytes > 0) __builtin_memcpy(to, row, bytes);
    __builtin_memset(reinterpret_cast<char*>(to) + bytes, 0, static_cast<uint64_t>(steps * 4) - bytes);
  }
}

// Widens kLanes rows of K that fill whole vectors.
template <Element kElement>
void widen_keys(WidenedKeys<kElement> keys, int64_t steps, Operand* to) {
  for (int64_t i = 0; i < kLanes; ++i) {
    for (int64_t step = 0; step < steps; step += kLanes, to += kLanes)
      store_operands(to, keys.template load_parts<kLanes>(i, step));
  }
}

// Scores of kLanes keys whose 16-bit rows fill whole vectors: a single row widens them as it goes.
template <class Score, Element kElement>
void score_widened(const FewQueriesTask& task, const BundleScratch& s, int64_t first_key, int64_t key) {
  const int64_t stride = task.k.row_stride;
  const WidenedKeys<kElement> keys{static_cast<const uint16_t*>(task.k.data) + (first_key + key) * stride, stride};
  if (few_rows_of(*task.shape) == 1)
    return score_keys<Together<1, 1>, Score>(*task.shape, s.bundles, keys, first_key, key);
  widen_keys(keys, few_steps(*task.shape), s.k);
  score_bundles<Score>(task, s, OperandKeys{s.k, few_steps(*task.shape)}, first_key, key);
}

// Scores of a block, of all bundles.
template <class Score>
void score_block(const FewQueriesTask& task, const BundleScratch& s, int64_t first_key, int64_t keys) {
  const int64_t steps = few_steps(*task.shape), dim = task.shape->dim_qk;
  const bool in_place = keys_hold_operands(task), whole_rows = dim == steps * kPairs;
  constexpr int64_t kBytesAhead = 8192;
  const int64_t row_bytes = dim * (task.k.element == Element::fp32 ? 4 : 2);
  LaterRows later = later_rows(task, task.k, dim, first_key, larger(kLanes, kBytesAhead / row_bytes));
  for (int64_t key = 0; key < keys; key += kLanes) {
    const bool whole = whole_rows && key + kLanes <= keys;
    if (whole && in_place) {
      const int64_t stride = task.k.row_stride / kPairs;
      const OperandKeys k{static_cast<const Operand*>(task.k.data) + (first_key + key) * stride, stride};
      if (task.far)
        score_bundles<Score>(task, s, FarKeys{k, later}, first_key, key);
      else
        score_bundles<Score>(task, s, k, first_key, key);
      continue;
    }
    if (task.far) later.prefetch(kLanes * later.lines());
    if (!whole || kBf16Dot) {
      copy_keys(task, first_key + key, smaller(kLanes, keys - key), s.k);
      score_bundles<Score>(task, s, OperandKeys{s.k, steps}, first_key, key);
    } else if constexpr (!kBf16Dot) {
      if (task.k.element == Element::bf16)
        score_widened<Score, Element::bf16>(task, s, first_key, key);
      else
        score_widened<Score, Element::fp16>(task, s, first_key, key);
    }
  }
}

// Raises the maximum of rows with a score above the limit, and rescales what the earlier keys of the chunk contributed.
__attribute__((noinline)) void raise_rows(const Shape& shape, const FewPartial& p, const Bundle& b, Vec largest) {
  float lanes[kLanes], factor[kLanes];
  store(lanes, largest);
  const int64_t parts = kLanes / b.width, dim = padded(shape.dim_v);
  const Exponential exponential(shape.log2_scale);
  for (int64_t r = 0; r < b.width; ++r) {
    const int64_t first = r * parts, row = b.first_row + r;
    float most = -kInfinity;
    for (int64_t i = first; i < first + parts; ++i) most = lanes[i] > most ? lanes[i] : most;
    if (!(most > b.limit[first])) continue;
    const Vec lower = b.limit[first] == -kInfinity ? zero() : exponential(broadcast(b.maximum[first] - most));
    store(factor, lower);
    p.sum[row] *= factor[0];
    for (int64_t d = 0; d < dim; d += kLanes) store(p.out + row * dim + d, mul(load(p.out + row * dim + d), lower));
    for (int64_t i = first; i < first + parts; ++i) {
      b.exact[i] *= factor[0];
      b.maximum[i] = most;
      b.limit[i] = most + kRescaleThreshold / shape.log2_scale;
    }
  }
}

// The keys of a block that each lane's row sees, as floats that lanes compare positions with.
template <int kWidth>
struct SeenLanes {
  static constexpr int kParts = kLanes / kWidth;
  Vec begin, end, position;  // position: of a lane's key in a vector of scores

  SeenLanes(const Shape& shape, const Bundle& b, int64_t first_key, int64_t keys) {
    float begins[kLanes], ends[kLanes], positions[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const Interval seen = visible_keys(shape, b.first_row + smaller(i / kParts, b.rows - 1));
      begins[i] = static_cast<float>(larger(0, smaller(keys, seen.begin - first_key)) - 1);
      ends[i] = static_cast<float>(larger(0, smaller(keys, seen.end - first_key)));
      positions[i] = static_cast<float>(i % kParts);
    }
    begin = load(begins), end = load(ends), position = load(positions);
  }
  // Of vector `n` of the block's scores.
  FOVEA_INLINE Mask sees(int64_t n) const {
    const Vec key = add(broadcast(static_cast<float>(n * kParts)), position);
    return both(less(begin, key), less(key, end));
  }
};

// Every lane sees every key of the block.
struct AllSeen {};

// Online softmax of a bundle's scores of a block, padded to `vectors`.
template <int kWidth, class Seen>
void softmax_bundle(const Shape& shape, const FewPartial& p, const Bundle& b, int64_t vectors, const Seen& seen) {
  constexpr bool kMasked = !__is_same(Seen, AllSeen);
  Vec largest = broadcast(-kInfinity);
  for (int64_t n = 0; n < vectors; ++n) {
    Vec x = load(b.scores + n * kLanes);
    if constexpr (kMasked) store(b.scores + n * kLanes, x = select(seen.sees(n), x, broadcast(-kInfinity)));
    largest = max(largest, x);
  }
  if (any(less(load(b.limit), largest))) raise_rows(shape, p, b, largest);
  const Exponential exponential(shape.log2_scale);
  const Vec maximum = load(b.maximum);
  Vec exact = zero();
  for (int64_t n = 0; n < vectors; ++n) {
    Vec x = exponential(sub(load(b.scores + n * kLanes), maximum));
    if constexpr (kMasked) x = select(seen.sees(n), x, zero());
    exact = add(exact, x);
    store_query_operands(b.probabilities, n * kLanes, x);
  }
  if (kBf16Dot) store(b.exact, add(load(b.exact), exact));
}

void softmax_block(const Shape& shape, const FewPartial& p, const Bundle& b, int64_t first_key, int64_t keys) {
  const int64_t padded_keys = round_up(keys, kLanes), vectors = padded_keys * b.width / kLanes;
  const bool whole = keys == padded_keys && b.common.begin <= first_key && first_key + keys <= b.common.end;
  with_width(b.width, [&](auto width) {
    if (whole)
      softmax_bundle<width.kWidth>(shape, p, b, vectors, AllSeen{});
    else
      softmax_bundle<width.kWidth>(shape, p, b, vectors, SeenLanes<width.kWidth>(shape, b, first_key, keys));
  });
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
