// Asks the system for memory and gives it back.
#include "program/machine/short_memory.h"

#include <sys/mman.h>

#include <cstddef>

namespace fovea::program {

bool memory_is_short() {
  constexpr std::size_t kBytes = std::size_t{128} << 20;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return true;
  munmap(memory, kBytes);
  return false;
}

}  // namespace fovea::program
