// The reference: attention in double precision and plain loops. Every other implementation is compared with it.
#pragma once

#include <span>

#include "attention/implementation.h"

namespace fovea::reference {

std::span<const attention::Implementation> implementations();

}  // namespace fovea::reference
