// The implementations of attention: their type and their list.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/plan.h"
#include "core/implementation.h"

namespace fovea::attention {

// Attention's parameters of the templates in src/core.
struct Types {
  using Problem = AttentionProblem;
  using ForwardTensors = fovea::ForwardTensors;
  using BackwardTensors = fovea::BackwardTensors;
  static std::string line(const AttentionProblem& problem);
  static std::size_t hash(const AttentionProblem& problem);
  static bool asks_reproducible(const AttentionProblem& problem) { return problem.reproducible; }
  static core::ImplementationList<Types>& list();  // src/implementations.cpp
  // If `name` is empty, FOVEA_IMPL may name one.
  static std::string_view requested(std::string_view name);
};

using Implementation = core::Implementation<Types>;

// The library's own implementations, in the order in which a call tries them, then those that a program added.
inline const core::ImplementationList<Types>& implementations() { return Types::list(); }

// Adds implementations that are not part of the library (the baselines). Must not be called while calls run.
void register_implementations(std::span<const Implementation> more);

// The names that a call may request: every implementation's, each once.
std::vector<std::string> known_names();

// Whether the implementation called `name` gives the same bits in every run. A program that names one that does not
// must set reproducible=false.
bool promises_reproducibility(std::string_view name);

// Whether the outputs have no elements, so that nothing runs.
bool writes_nothing(const AttentionProblem& problem);

// How many plans were made so far. A problem is planned again only after src/core/plan_cache.h has evicted its plan.
std::int64_t plans_made();

}  // namespace fovea::attention
