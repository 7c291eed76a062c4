// The expected results of a call, and the verdict on its actual results.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verification/comparer.h"
#include "verification/tensor_set.h"

namespace fovea::verification {

struct ExpectedTensor {
  std::string name;
  RowValues reference;
  Bound bound;
};

struct Expectation {
  bool sampled = false;       // rows were sampled, because the problem is large
  std::string unjudged = {};  // why some results cannot be judged; empty if all can
  std::vector<ExpectedTensor> tensors;
  // Measures the plain evaluation more often, which may raise the bounds. Reads the inputs that the expectation was
  // made from. Empty: there is nothing more to measure.
  std::function<void(Expectation&)> measure_more = {};
};

struct Verdict {
  bool ok = false;
  std::vector<TensorError> tensors;
  bool sampled = false;
  std::string unjudged = {};
  std::string reason() const;  // details of the tensors that are wrong
};

// Results that the set does not hold were not asked for and are not judged. If a tensor fails, the plain evaluation's
// error may have been small by luck. So it is measured more often, and the results are compared once more.
Verdict compare(const Expectation& expected, const TensorSet& results);

}  // namespace fovea::verification
