// The list of libraries, with the engine's own product as its first entry.
#include "linear/host_library.h"

#include "core/never_destroyed.h"

namespace fovea::linear {
namespace {

std::string takes_all(DType) { return {}; }

std::deque<HostLibrary>& libraries() {
  static auto& all = core::never_destroyed<std::deque<HostLibrary>>(
      1, HostLibrary{.name = "cpu.own", .title = "the engine's own kernels", .refusal = takes_all});
  return all;
}

}  // namespace

const std::deque<HostLibrary>& host_libraries() { return libraries(); }

int add_host_library(const HostLibrary& library) {
  libraries().push_back(library);
  return static_cast<int>(libraries().size()) - 1;
}

}  // namespace fovea::linear
