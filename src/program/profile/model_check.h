// Nothing is timed that was not checked: layers of a model's sizes, with random numbers, against double precision.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "program/profile/profile.h"
#include "verification/model/evaluation.h"

namespace fovea::program {

// Gradients and weights have the layout of the parameter map.
struct StepAnswers {
  std::vector<float> losses;  // of each token
  std::vector<float> gradients;
  std::vector<float> weights;  // after the step
};

// A step of a model with one layer, or two if activations are checkpointed. All other sizes are those of the model that
// is profiled.
struct CheckedStep {
  std::shared_ptr<const verification::ModelInputs> inputs;
  verification::ModelUpdate update;
  StepAnswers answers;  // of this library, on the device that is profiled
};

// Few tokens, since the reference takes seconds for many; not more than those of a sequence that is profiled.
model::Extent checked_extent(const model::Config& profiled, std::int64_t context);

// Makes the step. Throws Error as model::Model does.
CheckedStep checked_step(const model::Config& profiled, const ProfileSettings& settings, std::uint64_t seed);

struct ModelVerdict {
  std::string status = "ok", reason;  // mismatch, or oom: the check has no room; of kRowStatuses
  std::string compared;               // one layer of these sizes, 2 x 13 tokens
  std::map<std::string, ErrorFigures> error;
};

// By the reference, bounds and comparer of op=model.
ModelVerdict verdict_on(const CheckedStep& step);

// Both, with numbers that differ from run to run. Throws Interrupted once settings.stops() is true.
ModelVerdict check_model(const model::Config& profiled, const ProfileSettings& settings);

}  // namespace fovea::program
