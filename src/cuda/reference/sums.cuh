// Sums of products with the roundings of an evaluation, and the order of their terms. Each thread has its own sums.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/reference/plain_form.h"

namespace fovea::cuda::reference {

constexpr int kTermsAtOnce = 16;  // that tensor cores add

// The indices from `begin` to before `end`.
struct IndexRange {
  std::int64_t begin, end;
  __device__ std::int64_t size() const { return end - begin; }
};

// Forwards from `turn` and on at the other end; or backwards from the index before `turn`.
struct TermOrder {
  std::int64_t turn = 0;
  bool backwards = false;

  // The n-th index of a range.
  __device__ std::int64_t at(std::int64_t n, const IndexRange& range) const {
    const std::int64_t first = turn < range.begin ? range.begin : turn > range.end ? range.end : turn;
    if (backwards) return first - 1 - n < range.begin ? first - 1 - n + range.size() : first - 1 - n;
    return first + n >= range.end ? first + n - range.size() : first + n;
  }
};

// Of sums over `count` terms.
inline TermOrder order_of(const PlainForm& form, std::int64_t count) {
  if (count == 0) return {};
  const std::int64_t start = form.start % count;
  return {form.fused ? count - start : start, form.fused};
}

// A sum has terms added one by one, and `round` is called after every kTermsAtOnce of them and after the last. Before
// it, a sum that kAligns has seen the same terms, and `align` was called. `Term` is the type in which factors are
// multiplied. The product of two fp32 numbers is exact in double.

struct ExactSum {
  using Number = double;
  using Term = double;
  static constexpr bool kAligns = false;
  double value = 0;
  __device__ void add(double a, double b) { value = fma(a, b, value); }
  __device__ void round() {}
};

// Every product is rounded, then every sum.
struct ProductRoundingSum {
  using Number = float;
  using Term = float;
  static constexpr bool kAligns = false;
  float value = 0;
  __device__ void add(float a, float b) { value = __fadd_rn(value, __fmul_rn(a, b)); }
  __device__ void round() {}
};

// Products are exact, every sum is rounded.
struct FusedSum {
  using Number = float;
  using Term = double;
  static constexpr bool kAligns = false;
  float value = 0;
  __device__ void add(double a, double b) { value = __double2float_rn(fma(a, b, static_cast<double>(value))); }
  __device__ void round() {}
};

// Of tensor cores; Rounding::tensor_cores (verification/row_sums.h) says how they add.
struct TensorCoreSum {
  using Number = float;
  using Term = double;
  static constexpr bool kAligns = true;
  float value = 0;
  double aligned = 0, power = 0, unit = 0;
  __device__ void see(double a, double b) {
    const double of_product = power_of(a) * power_of(b);
    if (of_product > power) power = of_product;
  }
  __device__ void align() {
    const double own = power_of(value), largest = own > power ? own : power;
    unit = __double_as_longlong(largest) < kExponentBits ? largest * 0x1p-25 : 0;
    aligned = cut(value);
    power = 0;
  }
  __device__ void add(double a, double b) { aligned += cut(a * b); }
  __device__ void round() { value = __double2float_rz(aligned); }

 private:
  static constexpr long long kExponentBits = 0x7ffLL << 52;  // of a double; alone they are infinity
  // The largest power of 2 that is not larger than |number|; infinity if the number is not finite, 0 if it is 0.
  static __device__ double power_of(double number) {
    return __longlong_as_double(__double_as_longlong(number) & kExponentBits);
  }
  // The next multiple of the unit toward zero. A unit of 0 cuts nothing.
  __device__ double cut(double number) const {
    const double beyond_units = unit * 0x1.8p52;  // numbers of this size are multiples of the unit
    const double nearest = (number + beyond_units) - beyond_units;
    return fabs(nearest) > fabs(number) ? nearest - copysign(unit, number) : nearest;
  }
};

// Calls work with a sum of the form's kind.
template <class Work>
void with_sum_of(const PlainForm& form, const Work& work) {
  if (form.tensor_cores) {
    work(TensorCoreSum{});
  } else if (form.fused) {
    work(FusedSum{});
  } else {
    work(ProductRoundingSum{});
  }
}

}  // namespace fovea::cuda::reference
