// The expected results of a model: the reference, and bounds from the plain evaluation's error in the same precision.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "verification/model/evaluation.h"
#include "verification/operation.h"

namespace fovea::verification {

// Names of tensors, all but the first with the name of a parameter behind them.
inline constexpr std::string_view kLosses = "losses", kGradientOf = "gradient.", kUpdated = "updated.",
                                  kFirstMoment = "first_moment.", kSecondMoment = "second_moment.";

// `results`: the tensors that are wanted; backward has the losses too. `update`: what a step does behind backward.
Expectation expect_model(const std::shared_ptr<const ModelInputs>& inputs, const std::optional<ModelUpdate>& update,
                         Pass pass, const std::vector<TensorSpec>& results);

}  // namespace fovea::verification
