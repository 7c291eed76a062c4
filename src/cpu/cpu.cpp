#include "cpu/cpu.h"

namespace fovea {
int default_threads() { return 1; }
namespace cpu {
std::span<const core::Implementation> implementations() { return {}; }
}  // namespace cpu
}  // namespace fovea
