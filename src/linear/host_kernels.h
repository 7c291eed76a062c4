// The CPU engine's kernels that Linear uses beside a library: products, conversions, column sums.
#pragma once

#include "cpu/isa.h"
#include "fovea/tensor.h"

namespace fovea::linear {

// The kernels of the best instruction set that this machine has for products of this type.
const cpu::Kernels& host_kernels(DType operands);

constexpr cpu::Element element_of(DType type) {
  return type == DType::fp32 ? cpu::Element::fp32 : type == DType::bf16 ? cpu::Element::bf16 : cpu::Element::fp16;
}

}  // namespace fovea::linear
