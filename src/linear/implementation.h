// What computes Linear: a name, a refusal with its reason, its workspace, and a function that runs the steps.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/implementation.h"
#include "linear/steps.h"

namespace fovea::linear {

struct NamedMemory {
  std::string_view name;
  const void* data;  // null: nothing is touched
};

struct Implementation {
  std::string name;  // cpu.onednn
  DeviceKind device = DeviceKind::cpu;
  std::string named_because = {};                            // why it runs only when named; empty if it is chosen too
  std::function<std::string()> unavailable;                  // why this machine cannot run it; empty if it can
  std::function<std::string(const LinearProblem&)> refusal;  // why it does not take the problem; empty if it does
  std::function<std::int64_t(const LinearProblem&)> workspace_bytes;
  std::function<std::string(const LinearProblem&)> tiles;  // one line for `explain`
  // Steps were made with the context's workspace.
  std::function<void(const LinearProblem&, const Steps&, const core::RunContext&)> run;
  // Throws Error(invalid_argument) for memory or a stream that is not where the problem says; empty: nothing to ask.
  std::function<void(const LinearProblem&, const std::vector<NamedMemory>&, const core::RunContext&)> check_memory = {};
  // On the device, in the order of the stream; empty: host memory of core/memory.h.
  std::function<Buffer(const LinearProblem&, std::int64_t bytes, void* stream)> allocate_workspace = {};
  std::function<void(const LinearProblem&, const Buffer& workspace, void* stream)> release_workspace = {};
};

// Best first: those on GPUs, then those on the CPU. Made at the first call, when the program's libraries must be known.
const std::vector<Implementation>& all_implementations();

// The first that accepts, or the one that is named. Throws Error(invalid_argument) if none has the name,
// Error(unsupported) with every refusal if none accepts.
const Implementation& choose(const LinearProblem& problem, std::string_view name, std::string_view call);

// Throws Error(invalid_argument) if `name` is none of them.
void check_name(std::string_view name, std::string_view call);

// Every verdict; `name` may be empty.
std::vector<Explanation::Step> walk(const LinearProblem& problem, std::string_view name);

}  // namespace fovea::linear
