// The row passes of a device, for code that is the same on all devices.
#pragma once

#include <cstdint>
#include <optional>

#include "core/plan.h"
#include "heads/row_pass.h"

namespace fovea::heads {

struct Passes {
  void (*forward)(const RowPass& pass, const core::RunContext& context) = nullptr;
  void (*backward)(const RowPassBackward& pass, const core::RunContext& context) = nullptr;
  void (*sum)(const WeightGradient& sum, const core::RunContext& context) = nullptr;
};

const Passes& passes_on_host();

// Rows of `partial` that backward of rows of these sizes writes.
std::int64_t partial_rows(DeviceKind device, const Sizes& dy, const std::optional<Rotation>& rotation);

}  // namespace fovea::heads
