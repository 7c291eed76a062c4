// Checks what a worker left in shared memory, before any of it is timed.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/problem_line.h"
#include "program/record.h"
#include "program/shared_tensors.h"
#include "verification/check.h"

namespace fovea::program {

void fill_inputs(const core::Case& c, const TensorPlaces& places, const SharedBlock& inputs);

struct AnswerCheck {
  std::string wrong;  // what is wrong, with the tensor's name; empty if all is right
  bool sampled = false;
  std::map<std::string, ErrorFigures> error;
};

enum class BackwardReads : std::uint8_t {
  out_and_lse,  // what its forward wrote, so the truth is a function of these
  own_state,    // what it saved itself
};

// Checks all contenders of one case; what the answer should be is worked out once.
class AnswerChecker {
 public:
  AnswerChecker(const core::Case& c, const TensorPlaces& places, const SharedBlock& inputs)
      : case_(c), places_(places), inputs_(inputs) {}

  // `lse_optional`: a foreign kernel need not write it.
  AnswerCheck check(const SharedBlock& outputs, BackwardReads reads, bool lse_optional);

 private:
  verification::Verdict check_forward(const ForwardTensors& tensors);
  verification::Verdict check_backward(BackwardTensors tensors, BackwardReads reads);

  const core::Case& case_;
  const TensorPlaces& places_;
  const SharedBlock& inputs_;
  std::optional<verification::Expectation> forward_, backward_;
};

}  // namespace fovea::program
