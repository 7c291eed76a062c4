// The device that the tests of plans describe (plan_test.cpp), in the place of a real one.
#pragma once

namespace fovea::cuda {

constexpr int kH200Shared = 227 * 1024;  // bytes of shared memory that a thread block may use

void describe_device(int compute_capability, int processors, int shared, int resident);

}  // namespace fovea::cuda
