// Reads the environment once, while the library is loaded.
#include "core/environment.h"

#include <cstdlib>
#include <map>
#include <string>

#include "core/never_destroyed.h"

namespace fovea::core {
namespace {

using Values = std::map<std::string_view, std::string>;

const Values& values() {
  static const auto& all = never_destroyed<Values>([] {
    Values read;
    for (const char* name :
         {"FOVEA_IMPL", "FOVEA_THREADS", "FOVEA_CPU_ISA", "FOVEA_CUDA_SHARED_LIMIT", "FOVEA_CUDA_EARLY_LAUNCH",
          "FOVEA_CUBLAS", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME"}) {
      const char* value = std::getenv(name);
      read[name] = value == nullptr ? "" : value;
    }
    return read;
  }());
  return all;
}

[[maybe_unused]] const Values& environment_at_load = values();

}  // namespace

std::string_view environment(std::string_view name) { return values().at(name); }

}  // namespace fovea::core
