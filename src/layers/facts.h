// Checks of a layer's facts, for problems that are described and for those made by hand.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor_checks.h"
#include "fovea/layers.h"

namespace fovea::layers {

// heads_kv of a kind; 0 for gqa, whose caller must say it.
std::int64_t usual_heads_kv(LayerKind kind, std::int64_t heads_q);

// Throw Error(invalid_argument).
void check_kind(const core::Validator& check, LayerKind kind);
void check_heads(const core::Validator& check, const LayerProblem& problem);
void check_facts(const core::Validator& check, const LayerProblem& problem);  // of a known kind

// The problem line; "" if none can say it: a negative size, an unknown word.
std::string line_if_any(const LayerProblem& problem);

}  // namespace fovea::layers
