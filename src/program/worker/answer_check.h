// Checks what a worker left in shared memory, before any of it is timed.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "program/record/record.h"
#include "program/worker/device_reference.h"
#include "program/worker/shared_tensors.h"
#include "verification/attention/case.h"
#include "verification/attention/check.h"

namespace fovea::program {

void fill_inputs(const verification::AttentionCase& c, const TensorPlaces& places, const SharedBlock& inputs);

struct AnswerCheck {
  std::string wrong;  // what is wrong, with the tensor's name; empty if all is right
  bool sampled = false;
  bool inaccurate = false;  // a foreign answer beyond the contract's bound but within kForeignSlack of it
  std::map<std::string, ErrorFigures> error;
};

// Frameworks round where the contract does not (bf16 scores, above all). That is not wrong, but it is said.
inline constexpr double kForeignSlack = 8;

enum class BackwardReads : std::uint8_t {
  out_and_lse,  // what its forward wrote, so the truth is a function of these
  own_state,    // what it saved itself
};

// Checks all contenders of one case; what the answer should be is worked out once.
class AnswerChecker {
 public:
  AnswerChecker(const verification::AttentionCase& c, const TensorPlaces& places, const SharedBlock& inputs)
      : case_(c), places_(places), inputs_(inputs), definition_(definition_on(c.problem.device.kind)) {}

  // A foreign kernel need not write lse, and may be less accurate.
  AnswerCheck check(const SharedBlock& outputs, BackwardReads reads, bool foreign);

 private:
  verification::Verdict check_forward(const ForwardTensors& tensors);
  verification::Verdict check_backward(BackwardTensors tensors, BackwardReads reads);
  template <class Tensors>
  verification::Verdict judge(const verification::Expectation& expected, const Tensors& results);

  const verification::AttentionCase& case_;
  const TensorPlaces& places_;
  const SharedBlock& inputs_;
  const verification::Definition definition_;
  std::optional<verification::Expectation> forward_, backward_;
  bool foreign_ = false, inaccurate_ = false;  // of the answer that is being checked
};

}  // namespace fovea::program
