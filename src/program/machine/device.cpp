// Builds the refusal from the devices that were found.
#include "program/machine/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "cuda/measure/device_facts.h"
#include "cuda/measure/device_memory.h"
#include "program/machine/machine.h"
#include "program/terminal_text.h"

namespace fovea::program {
namespace {

constexpr std::size_t kMessageIndent = 2, kValueIndent = 10;  // of lines after a break, as other messages have them

}  // namespace

std::string missing_device(const verification::Operation& operation, DeviceKind device, const std::string& verb,
                           const std::string& instead) {
  if (device == DeviceKind::cpu) return "";
  std::string reasons;
  for (const verification::ImplementationFacts& one : operation.implementations()) {
    if (one.device != device) continue;
    if (one.unavailable.empty()) return "";
    reasons += "\n          " + one.name + ": " + one.unavailable;
  }
  if (reasons.empty() && !cuda::device_facts().empty()) return "";
  const Machine machine = this_machine();
  const std::string first =
      fmt::format("fovea {}: no device: device=cuda was asked for, but no implementation of {} can run there\n", verb,
                  operation.name());
  const std::string others = fmt::format(
      "  found:  {}{}\n  wanted: an NVIDIA GPU, its driver, and a build with FOVEA_CUDA\n"
      "  hint:   {} runs the same here\n",
      machine.gpus.empty() ? "no GPU" : machine.gpu_text(),
      reasons.empty() ? fmt::format("; {} has no CUDA implementations here", operation.name()) : reasons, instead);
  return wrapped(first, kMessageIndent) + wrapped(others, kValueIndent);
}

std::int64_t free_bytes(DeviceKind device) {
  if (device == DeviceKind::cuda) return cuda::free_device_bytes();
  return std::min(this_machine().available_bytes, free_address_space());
}

}  // namespace fovea::program
