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
  bool of_outputs = false;    // made from the outputs of one call, so it judges only that call
  std::string unjudged = {};  // why some results cannot be judged; empty if all can
  std::vector<ExpectedTensor> tensors;
  // Measure the plain evaluation more often, which may raise the bounds. Both read the inputs that the expectation was
  // made from. Empty: there is nothing more to measure.
  std::function<void(Expectation&)> measure_rest = {};  // of what counts for every answer
  std::function<void(Expectation&)> measure_more = {};  // what counts after a failure only

  // Measures the rest now: `TensorError::ratio_to_plain` of an answer that passes is over all that counts.
  void include_rest();
};

struct Verdict {
  bool ok = false;
  std::vector<TensorError> tensors;
  bool sampled = false;
  std::string unjudged = {};
  std::string reason() const;  // details of the tensors that are wrong
};

// Results that the set does not hold were not asked for and are not judged. If a tensor fails, the plain evaluation's
// error may have been small by luck. So the rest is measured, then more, and the results are compared again. An answer
// that passes earlier would pass with all bounds: more measurements can only raise them.
Verdict compare(const Expectation& expected, const TensorSet& results);

}  // namespace fovea::verification
