// The expected results of Linear: the reference, and bounds from the plain evaluation's error in the same precision.
#pragma once

#include <cstdint>

#include "fovea/linear.h"
#include "verification/expectation.h"

namespace fovea::verification {

// Of a call on `device`. Results that are missing from `tensors`, which are on the host, are not expected. In large
// problems, rows are sampled with the seed. `may_be_non_finite`: inputs hold NaN or infinity.
Expectation expect_linear_forward(const LinearForwardTensors& tensors, std::uint64_t seed,
                                  DeviceKind device = DeviceKind::cpu, bool may_be_non_finite = false);

// `before`: the gradients dx, dweight and dbias that the call adds to; without those that it overwrites.
Expectation expect_linear_backward(const LinearBackwardTensors& tensors, const TensorSet& before, std::uint64_t seed,
                                   DeviceKind device = DeviceKind::cpu, bool may_be_non_finite = false);

}  // namespace fovea::verification
