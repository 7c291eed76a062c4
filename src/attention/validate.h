// The contract's refusals, one function per kind of call. None of them reads tensor elements.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "fovea/attention.h"

namespace fovea::core {

inline constexpr std::int64_t kMaxDim = 4096;
inline constexpr std::int64_t kMaxPairs = std::int64_t{1} << 60;  // query-key pairs; their count must fit in 64 bits

// Whether the elements of every tensor and the query-key pairs stay below the limits. Sizes of 0 count as 1.
bool sizes_fit(const AttentionProblem& problem);

// Throw Error(invalid_argument) with the argument's name, its value and the wanted value.
AttentionProblem validate(const ForwardTensors& tensors, const AttentionOptions& options, std::string_view call);
AttentionProblem validate(const BackwardTensors& tensors, const AttentionOptions& options, std::string_view call);
void validate(const AttentionProblem& problem, std::string_view call);

// See AttentionProblem::unaligned: of 16-bit elements on a GPU.
bool is_unaligned(const TensorView& view);

void validate(std::span<const PartialResult> partials, const MutableTensorView& out, const MutableTensorView& lse,
              std::string_view call);

}  // namespace fovea::core
