// Products in blocks of columns, which several threads share if there is enough work.
#include "verification/layers/matrix.h"

#include <algorithm>

namespace fovea::verification {
namespace {

constexpr std::int64_t kColumns = 8, kRows = 8, kTerms = 512;
constexpr std::int64_t kWideColumns = 64;  // of a thread: the columns of b stay in its caches

double work_of(std::int64_t rows, std::int64_t terms, std::int64_t columns) {
  return static_cast<double>(rows) * static_cast<double>(terms) * static_cast<double>(columns);
}

// Adds kRows rows of a, `lead` apart, times a panel [terms, kColumns] to the sums.
using Sums = double[kRows][kColumns];
using Row = double __attribute__((vector_size(kColumns * sizeof(double)), aligned(sizeof(double)), may_alias));
inline __attribute__((always_inline)) void add_tile(const double* a, std::int64_t lead, const double* panel,
                                                    std::int64_t terms, Sums& sums) {
  Row rows[kRows] = {};
  for (std::int64_t t = 0; t < terms; ++t) {
    const Row& b = *reinterpret_cast<const Row*>(panel + t * kColumns);
    for (std::int64_t r = 0; r < kRows; ++r) rows[r] += a[r * lead + t] * b;
  }
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kColumns; ++c) sums[r][c] += rows[r][c];
  }
}

// The same for processors of several ages: large layers have trillions of multiply-adds.
using AddTile = void (*)(const double* a, std::int64_t lead, const double* panel, std::int64_t terms, Sums& sums);
void add_tile_plain(const double* a, std::int64_t lead, const double* panel, std::int64_t terms, Sums& sums) {
  add_tile(a, lead, panel, terms, sums);
}
#ifdef __x86_64__
__attribute__((target("avx2,fma"))) void add_tile_avx2(const double* a, std::int64_t lead, const double* panel,
                                                       std::int64_t terms, Sums& sums) {
  add_tile(a, lead, panel, terms, sums);
}
__attribute__((target("avx512f"))) void add_tile_avx512(const double* a, std::int64_t lead, const double* panel,
                                                        std::int64_t terms, Sums& sums) {
  add_tile(a, lead, panel, terms, sums);
}
#endif

AddTile fastest_add_tile() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return add_tile_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return add_tile_avx2;
#endif
  return add_tile_plain;
}

// Adds all rows of a, from the given term on, times the panel to some columns of c.
void add_rows(const Matrix<double>& a, std::int64_t term, std::int64_t terms, const double* panel, std::int64_t column,
              std::int64_t columns, Matrix<double>& c) {
  static const AddTile add = fastest_add_tile();
  std::vector<double> last(static_cast<std::size_t>(kRows * terms));  // the last rows, if they are fewer than kRows
  for (std::int64_t row = 0; row < a.rows; row += kRows) {
    const std::int64_t rows = std::min(kRows, a.rows - row);
    for (std::int64_t r = 0; rows < kRows && r < rows; ++r)
      std::copy_n(a.row(row + r) + term, terms, last.data() + r * terms);
    Sums sums = {};
    rows < kRows ? add(last.data(), terms, panel, terms, sums) : add(a.row(row) + term, a.columns, panel, terms, sums);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t n = 0; n < columns; ++n) c.row(row + r)[column + n] += sums[r][n];
    }
  }
}

}  // namespace

Matrix<double> product(const Matrix<double>& a, const Matrix<double>& b, const Matrix<double>& added) {
  Matrix<double> c(a.rows, b.columns);
  if (added.rows > 0) c = added;
  for_each_block(b.columns, kColumns, work_of(a.rows, a.columns, b.columns),
                 [&](std::int64_t first, std::int64_t count) {
                   std::vector<double> panel(static_cast<std::size_t>(kTerms * kColumns));
                   for (std::int64_t t0 = 0; t0 < b.rows; t0 += kTerms) {
                     const std::int64_t terms = std::min(kTerms, b.rows - t0);
                     for (std::int64_t t = 0; t < terms; ++t) {
                       for (std::int64_t n = 0; n < kColumns; ++n)
                         panel[static_cast<std::size_t>(t * kColumns + n)] = n < count ? b.row(t0 + t)[first + n] : 0.0;
                     }
                     add_rows(a, t0, terms, panel.data(), first, count, c);
                   }
                 });
  return c;
}

Matrix<float> product(const Matrix<float>& a, const Matrix<float>& b, const PlainVariant& variant,
                      const Matrix<float>& added) {
  Matrix<float> c = Matrix<float>::unset(a.rows, b.columns);
  const double work = work_of(a.rows, a.columns, b.columns);
  for_each_block(b.columns, kWideColumns, work, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t row = 0; row < a.rows; ++row) {
      RowSums sums(count, variant.rounding());
      const float* const first_added = added.rows > 0 ? added.row(row) + first : nullptr;
      if (first_added != nullptr && variant.fused) std::copy_n(first_added, count, sums.finish().begin());
      for (std::int64_t n = 0; n < a.columns; ++n) {
        const std::int64_t t = variant(n, a.columns);
        sums.add(a.row(row)[t], b.row(t) + first);
      }
      std::copy_n(sums.finish().begin(), count, c.row(row) + first);
      for (std::int64_t n = 0; first_added != nullptr && !variant.fused && n < count; ++n)
        c.row(row)[first + n] += first_added[n];
    }
  });
  return c;
}

void round_to(DType type, Matrix<float>& m) {
  if (type == DType::fp32) return;
  for_each_block(m.rows, 1, static_cast<double>(m.values.size()), [&](std::int64_t first, std::int64_t count) {
    std::transform(m.row(first), m.row(first + count), m.row(first),
                   [type](float value) { return rounded_to(type, value); });
  });
}

}  // namespace fovea::verification
