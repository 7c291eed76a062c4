// THE list: every implementation, best first. The only file that sees all backends.
#include <vector>

#include "core/implementation.h"
#include "core/never_destroyed.h"
#include "cpu/cpu.h"
#include "cuda/cuda.h"
#include "attention/reference/reference.h"

namespace fovea::core {
namespace {

std::vector<Implementation>& list() {
  static auto& all = never_destroyed<std::vector<Implementation>>([] {
    std::vector<Implementation> built_in;
    for (const auto backend : {cuda::implementations(), cpu::implementations(), reference::implementations()}) {
      built_in.insert(built_in.end(), backend.begin(), backend.end());
    }
    return built_in;
  }());
  return all;
}

}  // namespace

std::span<const Implementation> all_implementations() { return list(); }

void register_implementations(std::span<const Implementation> more) {
  list().insert(list().end(), more.begin(), more.end());
}

}  // namespace fovea::core
