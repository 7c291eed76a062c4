// Where copies lie, and which products a problem has.
#include "linear/plan.h"

#include "linear/problem_line.h"

namespace fovea::linear {
namespace {

constexpr std::int64_t kAlignment = 256;

std::int64_t copied(bool copies, std::int64_t rows, std::int64_t columns, DType dtype) {
  return copies ? (rows * columns * size_of(dtype) + kAlignment - 1) / kAlignment * kAlignment : 0;
}

}  // namespace

Plan::Plan(const LinearProblem& p)
    : problem(p),
      copied_dy_bytes(copied(p.copies_dy, p.rows(), p.columns_out(), p.dtype)),
      copied_bytes(copied_dy_bytes + copied(p.copies_x, p.rows(), p.columns_in(), p.dtype)) {
  call = p.pass == Pass::forward ? "linear_forward" : "linear_backward";
  device = p.device;
}

std::string Plan::line() const { return line_of(problem); }

std::vector<WholeProduct> whole_products(const LinearProblem& p) {
  const std::int64_t m = p.rows(), n = p.columns_out(), k = p.columns_in();
  if (m == 0 || n == 0 || k == 0) return {};
  if (p.pass == Pass::forward) return {{m, n, k, p.dtype, p.result_dtype}};
  std::vector<WholeProduct> all;
  if (p.wants_dx) all.push_back({m, k, n, p.dtype, p.result_dtype});
  if (p.wants_dweight) all.push_back({n, k, m, p.dtype, p.parameter_dtype});
  return all;
}

}  // namespace fovea::linear
