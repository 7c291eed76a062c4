// The contenders of a bench: our implementations, Python peers and foreign kernels, as named by --impl and --with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verification/operation.h"

namespace fovea::program {

struct Contender {
  std::string name;                  // as requested: flash, cpu.avx2, torch.sdpa, my_kernel.py:attention
  std::vector<std::string> command;  // starts its worker
  bool ours = false;                 // an implementation of the library's list
  bool holds_scores = true;          // a foreign one that may allocate whole score matrices
  std::string of_old = {};           // for name@old: the name that the older program knows
  std::string old_version = {};      // the older program's version
  bool saves = true;                 // false for name@no_saved: forward saves nothing for backward
};

// A script of python/fovea_bench: next to an installed program, or else in the sources that it was built from.
std::string python_script(const std::string& name);

// An older `fovea`, whose implementations are timed along with ours of the same names. Throws Error(invalid_argument)
// if the file is not a fovea program.
struct OldProgram {
  explicit OldProgram(const std::string& path);
  std::string path, version;
};
inline constexpr std::string_view kOldSuffix = "@old";
inline constexpr std::string_view kNoSavedSuffix = "@no_saved";

// Splits --impl at its commas, but not inside the path of a file that exists. "a,,b" has three names; contenders_of
// refuses the empty one.
std::vector<std::string> implementation_names(const std::string& list);

using Operations = std::vector<const verification::Operation*>;
Operations operations_of(const std::vector<verification::Case>& cases);  // each once, in order of appearance

// Throws Error(invalid_argument) for a name that no operation has and that is neither a file nor a peer, and for a
// repeated name.
std::vector<Contender> contenders_of(const std::vector<std::string>& names, const std::vector<std::string>& peers,
                                     const std::string& python, DeviceKind device, const Operations& operations);
// Adds the older program's versions of our contenders.
std::vector<Contender> with_old(std::vector<Contender> contenders, const OldProgram& old);
// Adds twins without saved state of our contenders that keep it for some case. Throws Error(invalid_argument) if none
// does.
std::vector<Contender> with_no_saved(std::vector<Contender> contenders, const std::vector<verification::Case>& cases);

// The implementation that would run a case for a contender, and the memory that it would need.
struct CellPlan {
  std::string implementation;  // the resolved name, with the contender's suffix; for foreign contenders, their own
  std::string asked;           // the name that its worker is asked for
  std::string refusal;         // empty if it takes the case
  std::int64_t workspace_bytes = 0, saved_bytes = 0;
};
CellPlan plan_cell(const Contender& contender, const verification::Case& c);

// Bytes of the inputs and outputs that exist before a backward pass.
std::int64_t forward_tensor_bytes(const verification::Case& c);
// All tensors of the case.
std::int64_t tensor_bytes(const verification::Case& c);

// The names that may be requested: `flash` and every implementation, each name once.
std::vector<std::string> known_names(const Operations& operations);

}  // namespace fovea::program
