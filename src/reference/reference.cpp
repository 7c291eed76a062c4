#include "reference/reference.h"

namespace fovea::reference {
std::span<const core::Implementation> implementations() { return {}; }
}  // namespace fovea::reference
