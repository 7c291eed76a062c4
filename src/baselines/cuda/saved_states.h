// Which saved states on devices belong to which problem. A header in device memory, as the CPU's baselines write one,
// could not be read without waiting for the device: it is remembered here by the state's address instead.
#pragma once

#include <string_view>

#include "fovea/attention.h"

namespace fovea::cuda::baselines {

// Forward forgets the state before it writes and remembers it at the end.
void forget_saved(const Buffer& saved);
void remember_saved(const AttentionProblem& problem, std::string_view implementation, const Buffer& saved);

// Throws Error(invalid_argument) if the last forward that saved to this address was not this implementation's of the
// same problem, or none did.
void check_saved(const AttentionProblem& problem, std::string_view implementation, const Buffer& saved);

}  // namespace fovea::cuda::baselines
