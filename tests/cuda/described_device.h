// The device that the tests of plans describe (plan_test.cpp), in the place of a real one.
#pragma once

#include <climits>

namespace fovea::cuda {

constexpr int kH200Shared = 227 * 1024;  // bytes of shared memory that a thread block may use

// `clusters`: most that fit the chip, of any size.
void describe_device(int compute_capability, int processors, int shared, int resident, int clusters = INT_MAX);

}  // namespace fovea::cuda
