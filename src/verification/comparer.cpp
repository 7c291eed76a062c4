// Checks non-finite values first, then every row's error, then the whole tensor's.
#include "verification/comparer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/float16.h"
#include "verification/blocks.h"

namespace fovea::verification {
namespace {

// Below it fp32 sums lose digits, and the processors' bf16 dot products treat numbers as 0.
constexpr double kLeastNormal = 0x1p-126;
constexpr std::int64_t kRowsOfABlock = 16;
constexpr double kWorkOfAnElement = 8;  // in multiply-adds

std::string print(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::string place(const RowIndex& row, std::int64_t column) {
  return "[" + std::to_string(row.batch) + ", " + std::to_string(row.head) + ", " + std::to_string(row.index) + ", " +
         std::to_string(column) + "]";
}

std::string shape_difference(const RowValues& got, const RowValues& reference) {
  if (got.rows == reference.rows && got.columns == reference.columns && got.values.size() == reference.values.size())
    return {};
  return "shapes differ: " + std::to_string(got.rows.size()) + " x " + std::to_string(got.columns) + " instead of " +
         std::to_string(reference.rows.size()) + " x " + std::to_string(reference.columns);
}

bool is_set(const std::vector<bool>& flags, std::size_t row) { return !flags.empty() && flags[row]; }

bool same_non_finite(double got, double reference, const Bound& bound) {
  if (bound.poisoned && !(bound.is_lse && reference == -HUGE_VAL)) return !std::isfinite(got);
  return std::isnan(reference) ? std::isnan(got) : got == reference;
}

// Calls work(row) for all rows. Rows must not write the same memory.
template <class Work>
void for_each_row(std::size_t rows, std::int64_t columns, const Work& work) {
  const double elements = static_cast<double>(rows) * static_cast<double>(columns);
  for_each_block(static_cast<std::int64_t>(rows), kRowsOfABlock, kWorkOfAnElement * elements,
                 [&work](std::int64_t first, std::int64_t count) {
                   for (std::int64_t row = first; row < first + count; ++row) work(static_cast<std::size_t>(row));
                 });
}

// Whether one element is right as far as no tolerance matters: both finite, or non-finite as they must be.
bool may_pass(double value, double wanted, std::size_t row, const Bound& bound) {
  const bool both_finite = std::isfinite(value) && std::isfinite(wanted);
  if (both_finite && (value == wanted || !is_set(bound.exact, row))) return true;
  if (is_set(bound.may_poison, row) && (bound.is_lse ? std::isnan(value) : !std::isfinite(value))) return true;
  return !std::isfinite(wanted) && same_non_finite(value, wanted, bound);
}

// Describes the first element that is wrong without any tolerance: non-finite in only one of the two, another infinity,
// or not exact in a row that must be.
std::string outright_difference(const RowValues& got, const RowValues& reference, const Bound& bound) {
  const auto columns = static_cast<std::size_t>(reference.columns);
  std::vector<std::size_t> wrong(reference.rows.size());  // the first wrong column of each row
  for_each_row(wrong.size(), reference.columns, [&](std::size_t row) {
    const double *const values = got.values.data() + row * columns, *const expected =
                                                                        reference.values.data() + row * columns;
    std::size_t c = 0;
    while (c < columns && may_pass(values[c], expected[c], row, bound)) ++c;
    wrong[row] = c;
  });
  for (std::size_t row = 0; row < wrong.size(); ++row) {
    if (wrong[row] == columns) continue;
    const double value = got.values[row * columns + wrong[row]], wanted = reference.values[row * columns + wrong[row]];
    const bool both_finite = std::isfinite(value) && std::isfinite(wanted);
    return place(reference.rows[row], static_cast<std::int64_t>(wrong[row])) + ": got " + print(value) + ", wanted " +
           print(wanted) + (both_finite ? " exactly" : "");
  }
  return {};
}

struct RowError {
  double error = 0, reference = 0;  // squares of Euclidean norms
  double worst = 0;                 // largest error of an element
  std::int64_t finite = 0;          // elements of the reference
  std::int64_t worst_column = 0;
};

// The error is over the elements where both are finite; outright_difference judges the others. The reference's norm
// does not depend on the answer.
RowError row_error(const RowValues& got, const RowValues& reference, std::size_t row) {
  RowError sums;
  double worst = -1;
  for (std::int64_t c = 0; c < reference.columns; ++c) {
    const std::size_t n = row * static_cast<std::size_t>(reference.columns) + static_cast<std::size_t>(c);
    const double value = got.values[n], wanted = reference.values[n];
    if (!std::isfinite(wanted)) continue;
    sums.reference += wanted * wanted;
    ++sums.finite;
    if (!std::isfinite(value)) continue;
    const double error = std::abs(value - wanted);
    sums.error += error * error;
    if (error > worst) {
      worst = error;
      sums.worst_column = c;
    }
  }
  sums.worst = std::max(worst, 0.0);
  return sums;
}

struct Errors {
  std::vector<RowError> rows;
  double error = 0, reference = 0;  // Euclidean norms of the tensor
  double root_mean_square = 0;      // of the reference's finite elements
  double least_row_size = 0;

  double error_of(std::size_t row) const { return std::sqrt(rows[row].error); }
  double reference_of(std::size_t row) const { return std::sqrt(rows[row].reference); }
};

Errors errors_of(const RowValues& got, const RowValues& reference) {
  Errors all;
  all.rows.resize(reference.rows.size());
  for_each_row(all.rows.size(), reference.columns,
               [&](std::size_t row) { all.rows[row] = row_error(got, reference, row); });
  double error = 0, squares = 0, finite = 0;
  for (const RowError& row : all.rows) {
    error += row.error;
    squares += row.reference;
    finite += static_cast<double>(row.finite);
  }
  all.error = std::sqrt(error);
  all.reference = std::sqrt(squares);
  all.root_mean_square = finite == 0 ? 0 : std::sqrt(squares / finite);
  all.least_row_size = all.root_mean_square * std::sqrt(static_cast<double>(reference.columns)) / 4;
  return all;
}

ErrorSize error_size_of(const Errors& errors, const RowValues& reference) {
  ErrorSize size;
  for (std::size_t row = 0; row < errors.rows.size(); ++row) {
    const double error = errors.error_of(row);
    size.row_norm = std::max(size.row_norm, error);
    size.max_abs = std::max(size.max_abs, errors.rows[row].worst);
    if (errors.least_row_size > 0)
      size.row_relative =
          std::max(size.row_relative, error / std::max(errors.reference_of(row), errors.least_row_size));
  }
  const auto elements = static_cast<double>(std::max<std::size_t>(reference.values.size(), 1));
  size.rel_l2 = errors.error / (errors.reference > 0 ? errors.reference : std::sqrt(elements));
  return size;
}

// The largest derived error of a row over the norm of the tensor: one row may be at its worst, all of them are not.
double worst_derived_share(const Errors& errors, const RowValues& reference, const Bound& bound) {
  const double norm = errors.root_mean_square * std::sqrt(static_cast<double>(reference.values.size()));
  if (bound.derived.empty() || norm == 0) return 0;
  return *std::max_element(bound.derived.begin(), bound.derived.end()) / norm;
}

}  // namespace

RowValues read_rows(const TensorView& view, const std::vector<RowIndex>& rows) {
  const auto columns = static_cast<std::size_t>(view.sizes[3]);
  RowValues result{rows, view.sizes[3], std::vector<double>(rows.size() * columns)};
  for_each_row(rows.size(), result.columns, [&](std::size_t row) {
    const auto& [b, h, i] = rows[row];
    const std::int64_t first = b * view.strides[0] + h * view.strides[1] + i * view.strides[2];
    for (std::size_t c = 0; c < columns; ++c)
      result.values[row * columns + c] =
          core::load_as_float(view.data, view.dtype, first + static_cast<std::int64_t>(c));
  });
  return result;
}

void ErrorSize::raise_to(const ErrorSize& other) {
  rel_l2 = std::max(rel_l2, other.rel_l2);
  max_abs = std::max(max_abs, other.max_abs);
  row_norm = std::max(row_norm, other.row_norm);
  row_relative = std::max(row_relative, other.row_relative);
}

ErrorSize error_of(const RowValues& got, const RowValues& reference) {
  return error_size_of(errors_of(got, reference), reference);
}

double half_ulp(DType type, double value) {
  // Digits of the significand, including the implied one, and the exponent of the smallest normal number.
  struct Format {
    int digits, lowest;
  };
  const Format format = type == DType::fp32   ? Format{24, -126}
                        : type == DType::bf16 ? Format{8, -126}
                                              : Format{11, -14};
  const int exponent = value > 0 ? std::max(std::ilogb(value), format.lowest) : format.lowest;
  return std::ldexp(1.0, exponent - format.digits);
}

void allow_overflow(RowValues& reference, Bound& bound) {
  const auto overflows = [&bound](double value) {
    float memory = 0;
    core::store_from_float(&memory, bound.stored, 0, static_cast<float>(value));
    return std::isinf(core::load_as_float(&memory, bound.stored, 0));
  };
  const auto columns = static_cast<std::size_t>(reference.columns);
  std::vector<char> near(reference.rows.size());
  for_each_row(near.size(), reference.columns, [&](std::size_t row) {
    for (std::size_t n = row * columns; n < (row + 1) * columns; ++n) {
      double& value = reference.values[n];
      if (!std::isfinite(value)) continue;
      if (overflows(value * 1.01)) near[row] = true;
      if (overflows(value)) value = std::copysign(HUGE_VAL, value);
    }
  });
  bound.may_poison.assign(near.begin(), near.end());
}

TensorError compare(const std::string& tensor, const RowValues& got, const RowValues& reference, const Bound& bound) {
  TensorError result{.tensor = tensor, .detail = shape_difference(got, reference)};
  if (!result.detail.empty()) return result;
  const Errors errors = errors_of(got, reference);
  const ErrorSize size = error_size_of(errors, reference);
  result.rel_l2 = size.rel_l2;
  result.max_abs = size.max_abs;
  const double rms = errors.root_mean_square, floor = std::max(half_ulp(bound.stored, rms), kLeastNormal);
  const double relative_floor = rms > 0 ? floor / rms : floor;
  result.ratio_to_plain = size.rel_l2 / (bound.plain.rel_l2 + relative_floor / bound.factor);
  result.detail = outright_difference(got, reference, bound);
  if (!result.detail.empty()) return result;
  const double row_floor = floor * std::sqrt(static_cast<double>(reference.columns));
  for (std::size_t row = 0; row < reference.rows.size(); ++row) {
    const double error = errors.error_of(row), norm = errors.reference_of(row);
    if (!bound.derived.empty() && error <= bound.derived[row] + row_floor) continue;
    const bool by_norm = error <= bound.factor * bound.plain.row_norm + row_floor;
    // If the plain evaluation's error is as large as a row, the row's sums cancel. Its size then gives no tolerance.
    const double by_size = bound.plain.row_relative * std::max(norm, errors.least_row_size);
    const bool by_ratio = norm <= bound.plain.row_norm || error <= bound.factor * by_size + row_floor;
    if (by_norm && by_ratio) continue;
    const std::int64_t column = errors.rows[row].worst_column;
    const std::size_t n = row * static_cast<std::size_t>(reference.columns) + static_cast<std::size_t>(column);
    result.detail = "row " + place(reference.rows[row], column) + ": got " + print(got.values[n]) + ", wanted " +
                    print(reference.values[n]) + "; the row's error " + print(error) + " (row norm " + print(norm) +
                    ") above " + print(bound.factor) + " x the plain evaluation's worst, " +
                    print(by_norm ? by_size : bound.plain.row_norm) + ", + " + print(row_floor);
    return result;
  }
  // If the plain evaluation's error is as large as the tensor, all its sums cancel, and only the rows' errors count.
  const bool cancels = bound.plain.rel_l2 >= 1.0;
  const double allowed = std::hypot(bound.factor * bound.plain.rel_l2, worst_derived_share(errors, reference, bound));
  if (!cancels && !(size.rel_l2 <= allowed + relative_floor)) {
    result.detail = "relative error " + print(size.rel_l2) + " above " + print(bound.factor) +
                    " x the plain evaluation's " + print(bound.plain.rel_l2) + " + " + print(relative_floor);
    return result;
  }
  result.ok = true;
  return result;
}

TensorError compare_lse(const RowValues& got, const RowValues& reference, const Bound& bound) {
  TensorError result{.tensor = "lse", .detail = shape_difference(got, reference)};
  if (!result.detail.empty()) return result;
  const ErrorSize size = error_of(got, reference);
  result.rel_l2 = size.rel_l2;
  result.max_abs = size.max_abs;
  result.ratio_to_plain = size.max_abs / (bound.plain.max_abs + half_ulp(DType::fp32, 1.0));
  result.detail = outright_difference(got, reference, bound);
  if (!result.detail.empty()) return result;
  for (std::size_t n = 0; n < reference.values.size(); ++n) {
    const double value = got.values[n], wanted = reference.values[n];
    if (!std::isfinite(wanted) || !std::isfinite(value)) continue;
    const double tolerance =
        bound.factor * bound.plain.max_abs + half_ulp(DType::fp32, std::max(std::abs(wanted), 1.0));
    if (std::abs(value - wanted) <= tolerance) continue;
    result.detail = place(reference.rows[n], 0) + ": got " + print(value) + ", wanted " + print(wanted) + " within " +
                    print(tolerance);
    return result;
  }
  result.ok = true;
  return result;
}

}  // namespace fovea::verification
