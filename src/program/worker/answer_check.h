// Checks a worker's results in shared memory before the contender is timed, and after its last sample.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "fovea/problem.h"
#include "program/record/record.h"
#include "program/worker/shared_tensors.h"
#include "verification/expectation.h"

namespace fovea::program {

void fill_inputs(const verification::Case& c, const TensorPlaces& places, const SharedBlock& inputs);

struct AnswerCheck {
  std::string wrong;  // the error, with the tensor's name; empty if the answer is right
  bool sampled = false;
  bool inaccurate = false;  // a foreign answer beyond the contract's bound but within kForeignSlack of it
  std::map<std::string, ErrorFigures> error;
};

// Frameworks round more than the contract allows (bf16 scores, above all). Such answers pass but are flagged.
inline constexpr double kForeignSlack = 8;

enum class BackwardReads : std::uint8_t {
  outputs,    // the outputs of its forward, so the expected gradients depend on them
  own_state,  // its own saved state
};

// Equal answers have equal digests, so that only an answer that changed is checked again.
std::size_t digest_of(const SharedBlock& outputs);

// Checks all contenders of one case; computes the expected results once.
class AnswerChecker {
 public:
  AnswerChecker(const verification::Case& c, const TensorPlaces& places, const SharedBlock& inputs)
      : case_(c), places_(places), inputs_(inputs) {}

  // `places` of the outputs. A foreign kernel need not write optional outputs, and may be less accurate.
  AnswerCheck check(const SharedBlock& outputs, const TensorPlaces& places, BackwardReads reads, bool foreign);

 private:
  verification::Expectation expectation_of(Pass pass, const verification::TensorSet& given, BackwardReads reads) const;
  verification::Verdict check_forward(const verification::TensorSet& tensors);
  verification::Verdict check_backward(const verification::TensorSet& tensors, BackwardReads reads);
  verification::Verdict judge(const verification::Expectation& expected, const verification::TensorSet& results);
  verification::TensorSet of_roles(const verification::TensorSet& tensors, bool inputs, bool outputs,
                                   bool gradients) const;

  const verification::Case& case_;
  const TensorPlaces& places_;
  const SharedBlock& inputs_;
  std::optional<verification::Expectation> forward_, backward_;
  bool foreign_ = false, inaccurate_ = false;  // of the current answer
};

}  // namespace fovea::program
