// Checks non-finite values first, then every row's error, then the whole tensor's.
#include "verification/comparer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/float16.h"

namespace fovea::verification {
namespace {

// Below it fp32 sums lose digits, and the processors' bf16 dot products treat numbers as 0.
constexpr double kLeastNormal = 0x1p-126;

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

// Describes the first element that is wrong without any tolerance: non-finite in only one of the two, another infinity,
// or not exact in a row that must be.
std::string outright_difference(const RowValues& got, const RowValues& reference, const Bound& bound) {
  for (std::size_t n = 0; n < reference.values.size(); ++n) {
    const double value = got.values[n], wanted = reference.values[n];
    const std::size_t row = n / static_cast<std::size_t>(reference.columns);
    const bool both_finite = std::isfinite(value) && std::isfinite(wanted);
    if (both_finite && (value == wanted || !is_set(bound.exact, row))) continue;
    if (is_set(bound.may_poison, row) && (bound.is_lse ? std::isnan(value) : !std::isfinite(value))) continue;
    if (!std::isfinite(wanted) && same_non_finite(value, wanted, bound)) continue;
    return place(reference.rows[row], static_cast<std::int64_t>(n) % reference.columns) + ": got " + print(value) +
           ", wanted " + print(wanted) + (both_finite ? " exactly" : "");
  }
  return {};
}

struct RowError {
  double error = 0, reference = 0;  // Euclidean norms
  std::int64_t worst_column = 0;
};

// The error is over the elements where both are finite; outright_difference judges the others. The reference's norm does
// not depend on the answer.
RowError row_error(const RowValues& got, const RowValues& reference, std::size_t row) {
  RowError sums;
  double worst = -1;
  for (std::int64_t c = 0; c < reference.columns; ++c) {
    const std::size_t n = row * static_cast<std::size_t>(reference.columns) + static_cast<std::size_t>(c);
    const double value = got.values[n], wanted = reference.values[n];
    if (!std::isfinite(wanted)) continue;
    sums.reference += wanted * wanted;
    if (!std::isfinite(value)) continue;
    sums.error += (value - wanted) * (value - wanted);
    if (std::abs(value - wanted) > worst) {
      worst = std::abs(value - wanted);
      sums.worst_column = c;
    }
  }
  sums.error = std::sqrt(sums.error);
  sums.reference = std::sqrt(sums.reference);
  return sums;
}

double root_mean_square(const RowValues& reference) {
  double sum = 0, count = 0;
  for (const double wanted : reference.values) {
    if (!std::isfinite(wanted)) continue;
    sum += wanted * wanted;
    count += 1;
  }
  return count == 0 ? 0 : std::sqrt(sum / count);
}

// The largest derived error of a row over the norm of the tensor: one row may be at its worst, all of them are not.
double worst_derived_share(const RowValues& reference, const Bound& bound) {
  const double norm = root_mean_square(reference) * std::sqrt(static_cast<double>(reference.values.size()));
  if (bound.derived.empty() || norm == 0) return 0;
  return *std::max_element(bound.derived.begin(), bound.derived.end()) / norm;
}

double least_row_size(const RowValues& reference) {
  return root_mean_square(reference) * std::sqrt(static_cast<double>(reference.columns)) / 4;
}

}  // namespace

RowValues read_rows(const TensorView& view, const std::vector<RowIndex>& rows) {
  RowValues result{rows, view.sizes[3], {}};
  result.values.reserve(rows.size() * static_cast<std::size_t>(result.columns));
  for (const auto& [b, h, i] : rows) {
    const std::int64_t first = b * view.strides[0] + h * view.strides[1] + i * view.strides[2];
    for (std::int64_t c = 0; c < result.columns; ++c)
      result.values.push_back(core::load_as_float(view.data, view.dtype, first + c));
  }
  return result;
}

void ErrorSize::raise_to(const ErrorSize& other) {
  rel_l2 = std::max(rel_l2, other.rel_l2);
  max_abs = std::max(max_abs, other.max_abs);
  row_norm = std::max(row_norm, other.row_norm);
  row_relative = std::max(row_relative, other.row_relative);
}

ErrorSize error_of(const RowValues& got, const RowValues& reference) {
  ErrorSize size;
  double error = 0, norm = 0;
  const double least = least_row_size(reference);
  for (std::size_t row = 0; row < reference.rows.size(); ++row) {
    const RowError r = row_error(got, reference, row);
    error += r.error * r.error;
    norm += r.reference * r.reference;
    size.row_norm = std::max(size.row_norm, r.error);
    if (least > 0) size.row_relative = std::max(size.row_relative, r.error / std::max(r.reference, least));
    if (reference.columns == 0) continue;
    const std::size_t n = row * static_cast<std::size_t>(reference.columns) + static_cast<std::size_t>(r.worst_column);
    if (std::isfinite(got.values[n]) && std::isfinite(reference.values[n]))
      size.max_abs = std::max(size.max_abs, std::abs(got.values[n] - reference.values[n]));
  }
  const auto elements = static_cast<double>(std::max<std::size_t>(reference.values.size(), 1));
  size.rel_l2 = std::sqrt(error / (norm > 0 ? norm : elements));
  return size;
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
  bound.may_poison.assign(reference.rows.size(), false);
  for (std::size_t n = 0; n < reference.values.size(); ++n) {
    double& value = reference.values[n];
    if (!std::isfinite(value)) continue;
    if (overflows(value * 1.01)) bound.may_poison[n / static_cast<std::size_t>(reference.columns)] = true;
    if (overflows(value)) value = std::copysign(HUGE_VAL, value);
  }
}

TensorError compare(const std::string& tensor, const RowValues& got, const RowValues& reference, const Bound& bound) {
  TensorError result{.tensor = tensor, .detail = shape_difference(got, reference)};
  if (!result.detail.empty()) return result;
  const ErrorSize size = error_of(got, reference);
  result.rel_l2 = size.rel_l2;
  result.max_abs = size.max_abs;
  const double rms = root_mean_square(reference), floor = std::max(half_ulp(bound.stored, rms), kLeastNormal);
  const double relative_floor = rms > 0 ? floor / rms : floor;
  result.ratio_to_plain = size.rel_l2 / (bound.plain.rel_l2 + relative_floor / bound.factor);
  result.detail = outright_difference(got, reference, bound);
  if (!result.detail.empty()) return result;
  const double row_floor = floor * std::sqrt(static_cast<double>(reference.columns)), least = least_row_size(reference);
  for (std::size_t row = 0; row < reference.rows.size(); ++row) {
    const RowError r = row_error(got, reference, row);
    if (!bound.derived.empty() && r.error <= bound.derived[row] + row_floor) continue;
    const bool by_norm = r.error <= bound.factor * bound.plain.row_norm + row_floor;
    // If the plain evaluation's error is as large as a row, the row's sums cancel. Its size then gives no tolerance.
    const double by_size = bound.plain.row_relative * std::max(r.reference, least);
    const bool by_ratio = r.reference <= bound.plain.row_norm || r.error <= bound.factor * by_size + row_floor;
    if (by_norm && by_ratio) continue;
    const std::size_t n = row * static_cast<std::size_t>(reference.columns) + static_cast<std::size_t>(r.worst_column);
    result.detail = "row " + place(reference.rows[row], r.worst_column) + ": got " + print(got.values[n]) +
                    ", wanted " + print(reference.values[n]) + "; the row's error " + print(r.error) + " (row norm " +
                    print(r.reference) + ") above " + print(bound.factor) + " x the plain evaluation's worst, " +
                    print(by_norm ? by_size : bound.plain.row_norm) + ", + " + print(row_floor);
    return result;
  }
  // If the plain evaluation's error is as large as the tensor, all its sums cancel, and only the rows' errors count.
  const bool cancels = bound.plain.rel_l2 >= 1.0;
  const double measured = bound.factor * bound.plain.rel_l2;
  if (!cancels && !(size.rel_l2 <= std::hypot(measured, worst_derived_share(reference, bound)) + relative_floor)) {
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
