// What the engine's tests share: running a case on each instruction set that this machine has.
#pragma once

#include <string>
#include <vector>

#include "cpu/cpu.h"
#include "verification/case_tensors.h"
#include "verification/check.h"

namespace fovea::cpu {

// Implementations of this engine that the machine can run and that take the case's forward.
inline std::vector<std::string> available(const core::Case& c) {
  std::vector<std::string> names;
  for (const auto& one : implementations()) {
    if (one.unavailable().empty() && one.refusal(c.problem).empty()) names.emplace_back(one.name);
  }
  return names;
}

inline AttentionOptions forced(const core::Case& c, const std::string& name, int threads = 1) {
  AttentionOptions options = verification::options_of(c);
  options.implementation = name;
  options.threads = threads;
  return options;
}

}  // namespace fovea::cpu
