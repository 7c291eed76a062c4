// Tells which problem a saved state on a device belongs to. Reading a header in device memory, as on the CPU, would
// mean waiting for the device. So this table has the headers, by the state's address.
#pragma once

#include <string_view>

#include "fovea/attention.h"

namespace fovea::cuda::baselines {

// Forward forgets the state before it writes it, and remembers it at the end.
void forget_saved(const Buffer& saved);
void remember_saved(const AttentionProblem& problem, std::string_view implementation, const Buffer& saved);

// Throws Error(invalid_argument) unless the last forward that saved to this address was this implementation's, of the
// same problem.
void check_saved(const AttentionProblem& problem, std::string_view implementation, const Buffer& saved);

}  // namespace fovea::cuda::baselines
