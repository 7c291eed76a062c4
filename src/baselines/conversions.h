// Converts rows of any type to floats and back.
#pragma once

#include <cstdint>

#include "fovea/tensor.h"

namespace fovea::baselines {

// `index` counts elements of `from` or `to`.
void widen_row(float* to, DType type, const void* from, std::int64_t index, std::int64_t count);
void narrow_row(void* to, DType type, std::int64_t index, const float* from, std::int64_t count);

// Converts a row of floats to 16-bit elements in the first half of its memory.
void narrow_in_place(DType type, float* row, std::int64_t count);

}  // namespace fovea::baselines
