// The sums of some neighbouring columns stay in registers while all waiting rows are added to them.
#include "verification/row_sums.h"

#include <algorithm>
#include <cmath>

namespace fovea::verification {
namespace {

constexpr std::size_t kMostTerms = RowSums::kRows, kLanes = 8;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));
using Doubles = double __attribute__((vector_size(kLanes * sizeof(double))));
using Bits = std::int32_t __attribute__((vector_size(kLanes * sizeof(float))));
using LongBits = std::int64_t __attribute__((vector_size(kLanes * sizeof(double))));
constexpr std::int64_t kExponentBits = std::int64_t{0x7ff} << 52;  // of a double

struct Terms {
  const float* factors;
  const float* const* rows;
  std::size_t count;
};

inline __attribute__((always_inline)) Doubles exact(Floats values) { return __builtin_convertvector(values, Doubles); }
inline __attribute__((always_inline)) Doubles size_of(Doubles values) { return values < 0 ? -values : values; }

// The next fp32 number toward zero has the bits before. A double beyond fp32 becomes the largest finite number.
inline __attribute__((always_inline)) Floats rounded_toward_zero(Doubles values) {
  const Floats nearest = __builtin_convertvector(values, Floats);
  const Bits beyond = __builtin_convertvector(size_of(exact(nearest)) > size_of(values), Bits);  // -1 where it is
  return reinterpret_cast<Floats>(reinterpret_cast<Bits>(nearest) + beyond);
}

// The largest power of 2 that is not larger than |value|; infinity where the value is not finite, 0 where it is 0.
inline __attribute__((always_inline)) Doubles power_of(Doubles values) {
  return reinterpret_cast<Doubles>(reinterpret_cast<LongBits>(values) & kExponentBits);
}

// The next multiple of the unit toward zero. A unit of 0 cuts nothing.
inline __attribute__((always_inline)) Doubles cut(Doubles value, Doubles unit) {
  const Doubles beyond_units = unit * 0x1.8p52;  // numbers of this size are multiples of the unit
  const Doubles nearest = (value + beyond_units) - beyond_units;
  const Doubles back = value < 0 ? -unit : unit;
  return size_of(nearest) > size_of(value) ? nearest - back : nearest;
}

// Adds the terms to kVectors * kLanes sums, from `column` of the rows on. The product of two fp32 numbers is exact in
// double.
template <std::size_t kVectors>
inline __attribute__((always_inline)) void add_columns(Rounding rounding, const Terms& terms, std::size_t column,
                                                       float* to) {
  auto* const sums = reinterpret_cast<Floats*>(to);
  const auto row = [&](std::size_t t) { return reinterpret_cast<const Floats*>(terms.rows[t] + column); };
  if (rounding == Rounding::tensor_cores) {
    const auto product = [&](std::size_t t, std::size_t v) {
      return static_cast<double>(terms.factors[t]) * exact(row(t)[v]);
    };
    Doubles powers[kVectors], units[kVectors], aligned[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) powers[v] = power_of(exact(sums[v]));
    for (std::size_t t = 0; t < terms.count; ++t) {
      const Doubles power = power_of(Doubles{} + static_cast<double>(terms.factors[t]));
      for (std::size_t v = 0; v < kVectors; ++v) {
        const Doubles of_product = power * power_of(exact(row(t)[v]));
        powers[v] = of_product > powers[v] ? of_product : powers[v];
      }
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
      units[v] = powers[v] < HUGE_VAL ? powers[v] * 0x1p-25 : Doubles{};
      aligned[v] = cut(exact(sums[v]), units[v]);
    }
    for (std::size_t t = 0; t < terms.count; ++t) {
      for (std::size_t v = 0; v < kVectors; ++v) aligned[v] += cut(product(t, v), units[v]);
    }
    for (std::size_t v = 0; v < kVectors; ++v) sums[v] = rounded_toward_zero(aligned[v]);
    return;
  }
  Floats own[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) own[v] = sums[v];
  if (rounding == Rounding::sums) {
    for (std::size_t t = 0; t < terms.count; ++t) {
      for (std::size_t v = 0; v < kVectors; ++v)
        own[v] = __builtin_convertvector(
            static_cast<double>(terms.factors[t]) * exact(row(t)[v]) + exact(own[v]), Floats);
    }
  } else {
    for (std::size_t t = 0; t < terms.count; ++t) {
      for (std::size_t v = 0; v < kVectors; ++v) own[v] += terms.factors[t] * row(t)[v];
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) sums[v] = own[v];
}

// The last columns, which fill no vector.
inline __attribute__((always_inline)) void add_last_columns(Rounding rounding, const Terms& terms, std::size_t column,
                                                            std::size_t count, float* to) {
  float sums[kLanes] = {}, rows[kMostTerms][kLanes] = {};
  const float* starts[kMostTerms];
  std::copy_n(to, count, sums);
  for (std::size_t t = 0; t < terms.count; ++t) {
    std::copy_n(terms.rows[t] + column, count, rows[t]);
    starts[t] = rows[t];
  }
  add_columns<1>(rounding, {terms.factors, starts, terms.count}, 0, sums);
  std::copy_n(sums, count, to);
}

inline __attribute__((always_inline)) void add_terms(Rounding rounding, const Terms& terms, std::vector<float>& sums) {
  constexpr std::size_t kVectors = 4;
  float* const to = sums.data();
  std::size_t column = 0;
  for (; column + kVectors * kLanes <= sums.size(); column += kVectors * kLanes)
    add_columns<kVectors>(rounding, terms, column, to + column);
  for (; column + kLanes <= sums.size(); column += kLanes) add_columns<1>(rounding, terms, column, to + column);
  if (column < sums.size()) add_last_columns(rounding, terms, column, sums.size() - column, to + column);
}

// The same for processors of several ages: large problems have trillions of products.
using AddTerms = void (*)(Rounding rounding, const Terms& terms, std::vector<float>& sums);
void add_terms_plain(Rounding rounding, const Terms& terms, std::vector<float>& sums) {
  add_terms(rounding, terms, sums);
}
#ifdef __x86_64__
__attribute__((target("avx2"))) void add_terms_avx2(Rounding rounding, const Terms& terms, std::vector<float>& sums) {
  add_terms(rounding, terms, sums);
}
__attribute__((target("avx512f"))) void add_terms_avx512(Rounding rounding, const Terms& terms,
                                                         std::vector<float>& sums) {
  add_terms(rounding, terms, sums);
}
#endif

AddTerms fastest_add_terms() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return add_terms_avx512;
  if (__builtin_cpu_supports("avx2")) return add_terms_avx2;
#endif
  return add_terms_plain;
}

}  // namespace

std::vector<float>& RowSums::finish() {
  static const AddTerms add_all = fastest_add_terms();
  if (waiting_ > 0) add_all(rounding_, {factors_.data(), rows_.data(), waiting_}, sums_);
  waiting_ = 0;
  return sums_;
}

}  // namespace fovea::verification
