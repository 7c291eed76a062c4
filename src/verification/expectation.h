// What the results of a call must be close to, and the verdict on them.
#pragma once

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
  bool sampled = false;       // rows were sampled, the problem being large
  std::string unjudged = {};  // why some of the results cannot be judged, so that a verdict says nothing of them
  std::vector<ExpectedTensor> tensors;
};

struct Verdict {
  bool ok = false;
  std::vector<TensorError> tensors;
  bool sampled = false;
  std::string unjudged = {};
  std::string reason() const;  // details of the tensors that are wrong
};

// Results that the set does not hold were not asked for and are not judged.
Verdict compare(const Expectation& expected, const TensorSet& results);

}  // namespace fovea::verification
