// A stage between scaling and the maximum that a test fills in, and its table.
#pragma once

#include "cpu/kernels/kernels.h"

namespace fovea::cpu {

constexpr float kCap = 1.5f;
constexpr int64_t kMovedQuery = 5, kMovedKey = 101;  // this pair's score is raised by kMoved
constexpr float kMoved = 2.0f;

extern const Kernels kSoftcapKernels;

}  // namespace fovea::cpu
