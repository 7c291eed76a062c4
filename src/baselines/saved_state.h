// The saved state: a header that identifies the problem, then the probabilities [batch, heads_q, len_q, len_k] in the
// inputs' type.
#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/attention.h"

namespace fovea::baselines {

inline constexpr std::int64_t kSavedHeaderBytes = 64;

std::int64_t saved_bytes(const AttentionProblem& problem);
void* saved_probabilities(const Buffer& saved);

// A hash of the implementation's name and of everything that the probabilities depend on.
std::uint64_t fingerprint_of(const AttentionProblem& problem, std::string_view implementation);

// Forward invalidates the header first and writes it last, so that a cancelled call leaves no valid state.
void invalidate_saved_header(const Buffer& saved);
void write_saved_header(const AttentionProblem& problem, std::string_view implementation, const Buffer& saved);

// Throws Error(invalid_argument) if `saved` was not written by this implementation's forward of the same problem.
void check_saved_header(const AttentionProblem& problem, std::string_view implementation, const Buffer& saved);

// Throws that refusal; `of_another`: the buffer holds the state of another problem.
[[noreturn]] void refuse_saved(const AttentionProblem& problem, std::string_view implementation, bool of_another);

}  // namespace fovea::baselines
