// One case on any implementation, against the reference.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/implementation.h"
#include "verification/case_tensors.h"
#include "verification/cases.h"
#include "verification/check.h"

namespace fovea::verification {

// How calls are made: by the library itself on the tensors of the case, or by one that carries them to a device.
struct AttentionCalls {
  void (*forward)(const ForwardTensors&, const AttentionOptions&) = attention_forward;
  void (*backward)(const BackwardTensors&, const AttentionOptions&) = attention_backward;
  Definition definition = {};  // of large problems
};

struct Outcome {
  enum class Kind { passed, failed, refused, exempt };
  Kind kind = Kind::passed;
  std::string reason;  // what is wrong, why it refuses, or why nothing is judged
};

// Holds a case's inputs and, computed once, what every implementation's answer must be close to.
class Differential {
 public:
  Differential(const core::Case& c, const Variation& variation, const AttentionCalls& calls = {});

  // Runs the case's passes. Besides the values, checks that nothing outside the outputs was written and no input
  // changed, and, where the variation says so, that another number of threads gives the same bits.
  Outcome run(const core::Implementation& implementation);

 private:
  Outcome run_forward(const core::Implementation& implementation);
  Outcome run_backward(const core::Implementation& implementation);
  std::string answer_forward(const core::Implementation& implementation, int threads, bool keeps_state);
  std::string answer_backward(const core::Implementation& implementation, int threads);
  Outcome judge(Verdict verdict) const;
  AttentionOptions options(const core::Implementation& implementation, const AttentionProblem& problem, int threads);
  void forward_by_reference();
  void fill_gradients();
  BackwardTensors backward_tensors() const;

  core::Case case_;
  Variation variation_;
  AttentionCalls calls_;
  AttentionProblem forward_, backward_;
  CaseTensors tensors_;
  HostTensor before_dq_, before_dk_, before_dv_;  // what gradients accumulate into
  HostTensor given_out_, given_lse_;              // the reference's, for the pass bwd
  HostTensor workspace_;
  std::optional<Expectation> expected_forward_, expected_backward_;
};

}  // namespace fovea::verification
