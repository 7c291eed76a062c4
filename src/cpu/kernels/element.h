// The types of numbers in memory. Kernels compute in fp32.
#pragma once

#include <stdint.h>

namespace fovea::cpu {

enum class Element : uint8_t { fp32, bf16, fp16 };

}  // namespace fovea::cpu
