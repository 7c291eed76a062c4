// Builds the refusal from the devices that were found.
#include "program/machine/device.h"

#include <fmt/format.h>

#include "cuda/measure/device_memory.h"
#include "fovea/attention.h"
#include "program/machine/machine.h"

namespace fovea::program {

std::string missing_device(DeviceKind device, const std::string& verb, const std::string& instead) {
  if (device == DeviceKind::cpu) return "";
  std::string reasons;
  for (const auto& one : implementations()) {
    if (one.device != device) continue;
    if (one.unavailable.empty()) return "";
    reasons += "\n          " + one.name + ": " + one.unavailable;
  }
  const Machine machine = this_machine();
  return fmt::format(
      "fovea {}: no device: device=cuda was asked for, but no implementation can run there\n  found:  {}{}\n"
      "  wanted: an NVIDIA GPU, its driver, and a build with FOVEA_CUDA\n"
      "  hint:   {} runs the same here\n",
      verb, machine.gpus.empty() ? "no GPU" : fmt::format("{}", fmt::join(machine.gpus, ", ")),
      reasons.empty() ? "; this build has no CUDA implementations" : reasons, instead);
}

std::int64_t free_bytes(DeviceKind device) {
  return device == DeviceKind::cpu ? this_machine().available_bytes : cuda::free_device_bytes();
}

}  // namespace fovea::program
