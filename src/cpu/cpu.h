// The CPU engine's implementations, one per instruction set, the widest first.
#pragma once

#include <span>

#include "attention/implementation.h"

namespace fovea::cpu {

std::span<const attention::Implementation> implementations();

}  // namespace fovea::cpu
