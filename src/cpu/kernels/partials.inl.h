// Partial results of forward over chunks of keys, for few query rows per key head, and their combination.
#pragma once

#include "cpu/kernels/score.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kFewRows = 16;  // the most query rows of a sequence
constexpr bool kManyRegisters = kDimTileRows * kDimTileVectors >= 24;

// What one chunk of keys contributes to a sequence's rows.
struct FewPartial {
  float* maximum;  // [kFewRows], subtracted from unscaled scores; -infinity before the first score
  float* sum;      // [kFewRows], of P as multiplied with V
  float* exact;    // [kFewRows], of P before rounding, for lse
  float* out;      // [rows of all bundles][padded dim_v], not yet divided by sum
};

int64_t few_steps(const Shape& s) { return round_up(s.dim_qk, kLanes * kPairs) / kPairs; }
int64_t few_rows_of(const Shape& s) { return s.group * s.len_q; }

constexpr int kWidestBundle = kLanes / 2;  // so a row has the keys of a pair in lanes of its own

// Rows of the next bundle (bundles.inl.h) if `left` of `rows` are left: less than a quarter of them need not exist. Two
// bundles of one width are multiplied together, so rows that fit into one of the widest make two narrower ones.
int64_t bundle_width(int64_t rows, int64_t left) {
  const int64_t widest = rows > kWidestBundle ? kWidestBundle : larger(1, kWidestBundle / 2);
  int64_t width = 1;
  while (width < left && width < widest) width *= 2;
  return 4 * left <= 3 * width && width > 1 ? width / 2 : width;
}

int64_t bundled_rows(int64_t rows) {
  int64_t sum = 0;
  while (sum < rows) sum += bundle_width(rows, rows - sum);
  return sum;
}

int64_t carve(const Shape& s, char* base, FewPartial& p) {
  Scratch memory{base, 0};
  p.maximum = memory.take<float>(kFewRows);
  p.sum = memory.take<float>(kFewRows);
  p.exact = memory.take<float>(kFewRows);
  p.out = memory.take<float>(bundled_rows(few_rows_of(s)) * padded(s.dim_v));
  return memory.used;
}

// Epilogue: adds the chunks' contributions to one row in the order of the keys, relative to the largest maximum.
void combine_row(const CombineTask& task, int64_t row, float* out) {
  const Shape& shape = *task.shape;
  const int64_t dim = padded(shape.dim_v);
  const Interval seen = visible_keys(shape, row);
  const bool fully_masked = seen.begin >= seen.end;
  FewPartial p;
  const int64_t bytes = carve(shape, nullptr, p);
  const auto chunk = [&](int64_t c) { carve(shape, reinterpret_cast<char*>(task.partials) + c * bytes, p); };
  float most = -kInfinity;
  for (int64_t c = 0; c < task.chunks; ++c) {
    chunk(c);
    most = p.maximum[row] > most ? p.maximum[row] : most;
  }
  const Exponential exponential(shape.log2_scale);
  Vec sum = zero(), exact = zero();
  for (int64_t d = 0; d < dim; d += kLanes) store(out + d, zero());
  for (int64_t c = 0; c < task.chunks && !fully_masked; ++c) {
    chunk(c);
    const Vec factor = p.maximum[row] == -kInfinity ? zero() : exponential(broadcast(p.maximum[row] - most));
    sum = fma(broadcast(p.sum[row]), factor, sum);
    exact = fma(broadcast(p.exact[row]), factor, exact);
    for (int64_t d = 0; d < dim; d += kLanes) store(out + d, fma(load(p.out + row * dim + d), factor, load(out + d)));
  }
  if (fully_masked) sum = broadcast(1.0f);
  for (int64_t d = 0; d < dim; d += kLanes) store(out + d, div(load(out + d), sum));
  write_rows(out, dim, 1.0f, task.out, shape.group, row, 1, shape.dim_v, false);
  if (task.lse.data == nullptr) return;
  float lanes[kLanes];
  store(lanes, kBf16Dot ? exact : sum);
  const int64_t offset = row_offset(task.lse.head_stride, task.lse.row_stride, shape.group, row);
  static_cast<float*>(task.lse.data)[offset] =
      fully_masked ? -kInfinity : log_sum(scaled_score(shape, most == -kInfinity ? 0.0f : most), lanes[0]);
}

void combine_partials(const CombineTask& task) {
  for (int64_t row = 0; row < few_rows_of(*task.shape); ++row)
    combine_row(task, row, static_cast<float*>(task.scratch));
}

// Rows of a tensor that are read later. They are prefetched into the L2 cache line by line, in the order of memory.
struct LaterRows {
  const char *line, *row, *end;  // the next line, its row; end of the last row, null if nothing is prefetched
  int64_t stride, bytes;         // of a row, of its elements

  FOVEA_INLINE void prefetch(int64_t lines) {
    if (line >= end) return;
    if (stride == bytes) {
      for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(line + i * 64, 0, 2);
      line += lines * 64;
      return;
    }
    for (int64_t i = 0; i < lines; ++i) {
      __builtin_prefetch(line, 0, 2);
      line += 64;
      if (line >= row + bytes) line = row += stride;
    }
  }
  int64_t lines() const { return (bytes + 63) / 64; }
};

// The rows of the task's chunk from `distance` rows behind `key` on; none if the task does not prefetch.
LaterRows later_rows(const FewQueriesTask& task, const InputRows& rows, int64_t dim, int64_t key, int64_t distance) {
  const int64_t width = rows.element == Element::fp32 ? 4 : 2, stride = rows.row_stride * width;
  const char* const data = static_cast<const char*>(rows.data);
  const char* const first = data + (key + distance) * stride;
  return {first, first, task.far ? data + (task.first_key + task.keys) * stride : nullptr, stride, dim * width};
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
