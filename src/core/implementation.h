// What an implementation is: a name, a refusal with its reason, a plan, and two functions that run.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "fovea/attention.h"

namespace fovea::core {

// What must be allocated before an implementation runs one problem.
struct Plan {
  std::int64_t workspace_bytes = 0;
  std::int64_t saved_bytes = 0;
};

// Everything of the options that a backend needs while it runs. Validated; the workspace is as large as planned.
struct RunContext {
  void* workspace = nullptr;
  int threads = 1;  // of the host
  const ThreadLender* lender = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  void* stream = nullptr;
};

struct Implementation {
  std::string_view name;  // cpu.avx512
  DeviceKind device = DeviceKind::cpu;
  bool automatic = true;      // false: runs only when named
  std::string named_because;  // why only then, if there is more to say
  bool reproducible = true;   // false: promises no bitwise equality and takes problems that do without it only
  // Why this machine cannot run it at all; empty if it can.
  std::string (*unavailable)() = nullptr;
  // Why it does not take this problem; empty if it does. The device and availability are checked by the caller.
  std::string (*refusal)(const AttentionProblem&) = nullptr;
  Plan (*plan)(const AttentionProblem&) = nullptr;
  // How it would cut the problem, one line for `explain`; calls do without.
  std::string (*tiles)(const AttentionProblem&) = nullptr;
  void (*forward)(const AttentionProblem&, const ForwardTensors&, const RunContext&) = nullptr;
  void (*backward)(const AttentionProblem&, const BackwardTensors&, const RunContext&) = nullptr;
  // Workspace on the device, taken and given back in the order of the stream; null: host memory of core/memory.h. What
  // is taken may be larger than asked for.
  Buffer (*allocate_workspace)(const AttentionProblem&, std::int64_t bytes, void* stream) = nullptr;
  void (*release_workspace)(const AttentionProblem&, const Buffer& workspace, void* stream) = nullptr;
};

// THE list, best first (src/implementations.cpp), and after it what a program added.
std::span<const Implementation> all_implementations();

// Adds implementations that the library does not carry itself (the baselines). Call before any attention call, once.
void register_implementations(std::span<const Implementation> more);

}  // namespace fovea::core
