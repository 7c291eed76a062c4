// The keys of problem lines that attention and its layers share: mask, left, right and scale.
#pragma once

#include <optional>
#include <vector>

#include "core/problem_line.h"
#include "fovea/mask.h"

namespace fovea::core {

// mask, then left and right of windows.
std::vector<Key> mask_keys();
Key scale_key();  // of lines with the key d

Mask mask_of(const LineValues& values);
void set_mask(LineValues& values, const Mask& mask);

// Refuses invalid masks, and windows that another word names: every problem has exactly one line.
std::optional<LineFault> mask_fault_of(const LineValues& values, std::int64_t len_q, std::int64_t len_k);

}  // namespace fovea::core
