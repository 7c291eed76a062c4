// What the plans of all of Linear's implementations hold.
#pragma once

#include "core/plan.h"
#include "fovea/linear.h"

namespace fovea::linear {

struct Plan : core::Plan {
  explicit Plan(const LinearProblem& problem);
  std::string line() const override;

  LinearProblem problem;
  // The workspace begins with copies of inputs: dy, then x.
  std::int64_t copied_dy_bytes, copied_bytes;
};

// A GEMM of the problem if batch and heads fold into its rows and columns; an upper bound for the sizes otherwise.
struct WholeProduct {
  std::int64_t m, n, k;
  DType operands, result;
};
std::vector<WholeProduct> whole_products(const LinearProblem& problem);

}  // namespace fovea::linear
