// The only comparer: is a tensor as close to the reference as the contract asks? A NaN fails unless the reference has
// one there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::verification {

struct RowIndex {
  std::int64_t batch, head, index;
  bool operator==(const RowIndex&) const = default;
};

// Chosen rows of a tensor, widened to double.
struct RowValues {
  std::vector<RowIndex> rows;
  std::int64_t columns = 0;
  std::vector<double> values;  // [rows, columns]
};
RowValues read_rows(const TensorView& view, const std::vector<RowIndex>& rows);

// How far one evaluation is from the reference, over the elements where the reference is finite. A row's size is its
// Euclidean norm, but at least a quarter of the root mean square of all rows' norms. A row that cancels almost to zero
// would otherwise dominate.
struct ErrorSize {
  double rel_l2 = 0;        // of the whole tensor; its root mean square error if the reference is 0
  double max_abs = 0;       // of any element
  double row_norm = 0;      // largest Euclidean norm of a row's error
  double row_relative = 0;  // largest norm of a row's error over the row's size
  void raise_to(const ErrorSize& other);
};
ErrorSize error_of(const RowValues& got, const RowValues& reference);

struct TensorError {
  std::string tensor;  // out lse dq dk dv
  bool ok = false;
  double rel_l2 = 0;          // |got - reference| / |reference|, Euclidean over all compared elements
  double max_abs = 0;         // largest |got - reference|
  double ratio_to_plain = 0;  // rel_l2 over the plain evaluation's rel_l2 (floor included)
  std::string detail;         // the first thing wrong, with its index; empty if ok
};

struct Bound {
  double factor = 2;      // times the plain evaluation's error: 2 forward, 3 backward
  ErrorSize plain;        // the plain evaluation's error; its worst row counts for every row
  DType stored{};         // the tensor's; its floor is half an ulp at the reference's root mean square, at least 2^-126
  bool poisoned = false;  // inputs hold NaN or infinity: any non-finite value matches any other
  bool is_lse = false;    // of a log-sum-exp, where -inf always means a sum of nothing
  std::vector<bool> may_poison = {};  // per row: hidden or overflowing values may poison it; empty: none
  std::vector<double> derived = {};   // per row: an error that is derived from the roundings, and allowed; empty: none
  std::vector<bool> exact = {};       // per row: nothing is summed, so it must equal the reference; empty: none
};

// A reference beyond the range of the stored type becomes infinite; near the end of the range, either is accepted.
void allow_overflow(RowValues& reference, Bound& bound);

// Every condition has the form error <= tolerance, so that a NaN fails it.
TensorError compare(const std::string& tensor, const RowValues& got, const RowValues& reference, const Bound& bound);

// lse is compared by absolute error, because its size does not affect the accuracy of P. The tolerance is `factor`
// times the plain evaluation's largest error, plus half an ulp of the row's own lse. -inf must be -inf.
TensorError compare_lse(const RowValues& got, const RowValues& reference, const Bound& bound);

// Half the distance between neighbouring numbers of the type at |value|.
double half_ulp(DType type, double value);

}  // namespace fovea::verification
