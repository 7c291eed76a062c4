// What the plans of all of Linear's implementations hold.
#pragma once

#include "core/plan.h"
#include "fovea/linear.h"

namespace fovea::linear {

struct Plan : core::Plan {
  explicit Plan(const LinearProblem& problem);
  std::string line() const override;

  LinearProblem problem;
  // Inputs that are copied lie at the beginning of the workspace: dy, then x.
  std::int64_t copied_dy_bytes, copied_bytes;
};

// A product that a problem becomes where no tensor splits it: no other has larger sizes.
struct WholeProduct {
  std::int64_t m, n, k;
  DType operands, result;
};
std::vector<WholeProduct> whole_products(const LinearProblem& problem);

}  // namespace fovea::linear
