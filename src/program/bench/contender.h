// Who is timed: our implementations, peers of a Python, and anybody's kernel, each by the words of --impl and --with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verification/operation.h"

namespace fovea::program {

struct Contender {
  std::string name;                  // as asked for: flash, cpu.avx2, torch.sdpa, my_kernel.py:attention
  std::vector<std::string> command;  // that starts its worker
  bool ours = false;                 // an implementation of the library's list
  bool holds_scores = true;          // another's that may allocate whole score matrices
  std::string of_old = {};           // name@old: the name of ours that an older program runs under it
  std::string old_version = {};      // what that program says of itself
};

// An older `fovea`, whose implementations are timed beside ours of the same names. Throws Error(invalid_argument) for a
// file that is no such program.
struct OldProgram {
  explicit OldProgram(const std::string& path);
  std::string path, version;
};
inline constexpr std::string_view kOldSuffix = "@old";

// Throws Error(invalid_argument) for a name that is neither ours, a file nor a peer, and for one that is named twice.
std::vector<Contender> contenders_of(const std::vector<std::string>& names, const std::vector<std::string>& peers,
                                     const std::string& python, DeviceKind device,
                                     const verification::Operation& operation);
// Ours again, as the older program runs them.
std::vector<Contender> with_old(std::vector<Contender> contenders, const OldProgram& old);

// What one of ours would do with a case: which implementation, and how much memory that takes.
struct CellPlan {
  std::string implementation;  // resolved; the contender's own name for others
  std::string refusal;         // why it does not take the case; empty if it does
  std::int64_t workspace_bytes = 0, saved_bytes = 0;
};
CellPlan plan_cell(const Contender& contender, const verification::Case& c);

// Bytes of inputs and outputs that exist before a backward pass.
std::int64_t forward_tensor_bytes(const verification::Case& c);
// All tensors of the case.
std::int64_t tensor_bytes(const verification::Case& c);

// What may be asked for by name: `flash` and every implementation, each name once.
std::vector<std::string> known_names(const verification::Operation& operation);

}  // namespace fovea::program
