// What the engine's tests share: every set of kernels that this machine can run.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/cpu.h"
#include "cpu/kernels/kernels.h"
#include "verification/attention/case_tensors.h"
#include "verification/attention/check.h"

namespace fovea::cpu {

inline void add_takers(std::vector<std::string>& names, std::span<const attention::Implementation> list,
                       const AttentionProblem& problem) {
  for (const auto& one : list) {
    if (one.obstacle().empty() && one.prepared(problem).refusal.empty()) names.emplace_back(one.name);
  }
}

// The names of the engine's implementations that the machine can run and that take the problem.
inline std::vector<std::string> of_this_machine(const AttentionProblem& problem) {
  std::vector<std::string> names;
  add_takers(names, implementations(), problem);
  return names;
}

// Adds the emulated kernels to the implementations of attention: emulated.avx512, .avx512_bf16 and .amx.
void register_emulated();

// The same and the emulated ones.
std::vector<std::string> available(const AttentionProblem& problem);

// The tables of kernels that the machine can run, and of the emulated ones.
std::vector<const Kernels*> all_kernels();

// The status with which a call ends.
template <class Call>
Status status_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.status();
  }
  return Status::ok;
}

inline AttentionOptions forced(const verification::AttentionCase& c, std::string_view name, int threads = 1) {
  AttentionOptions options = verification::options_of(c);
  options.implementation = name;
  options.threads = threads;
  return options;
}

}  // namespace fovea::cpu
