// What the engine's tests share: every set of kernels that this machine can run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cpu/cpu.h"
#include "verification/case_tensors.h"
#include "verification/check.h"

namespace fovea::cpu {

// The names of the engine's implementations that the machine can run and that take the problem, and of the emulated
// AVX-512 ones.
std::vector<std::string> available(const AttentionProblem& problem);

inline AttentionOptions forced(const core::Case& c, std::string_view name, int threads = 1) {
  AttentionOptions options = verification::options_of(c);
  options.implementation = name;
  options.threads = threads;
  return options;
}

}  // namespace fovea::cpu
