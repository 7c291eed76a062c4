// The expected results of a model: the reference, and bounds from the plain evaluation's error in the same precision.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "verification/model/evaluation.h"
#include "verification/operation.h"

namespace fovea::verification {

// Names of tensors: losses, and these with the name of a parameter behind them.
inline constexpr std::string_view kGradientOf = "gradient.", kUpdated = "updated.", kFirstMoment = "first_moment.",
                                  kSecondMoment = "second_moment.";

// `results`: the tensors of one pass that are wanted. `update`: what a step does behind backward.
Expectation expect_model(const std::shared_ptr<const ModelInputs>& inputs, const std::optional<ModelUpdate>& update,
                         Pass pass, const std::vector<TensorSpec>& results);

}  // namespace fovea::verification
