// The CPU engine's implementations, one per instruction set, best first.
#pragma once

#include <span>

#include "core/implementation.h"

namespace fovea::cpu {

std::span<const core::Implementation> implementations();

}  // namespace fovea::cpu
