// The implementations of attention: their type and THE list.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/plan.h"
#include "core/implementation.h"

namespace fovea::attention {

// What the templates of src/core need to know.
struct Types {
  using Problem = AttentionProblem;
  using ForwardTensors = fovea::ForwardTensors;
  using BackwardTensors = fovea::BackwardTensors;
  static std::string line(const AttentionProblem& problem);
  static bool asks_reproducible(const AttentionProblem& problem) { return problem.reproducible; }
  static core::ImplementationList<Types>& list();  // src/implementations.cpp
  // FOVEA_IMPL, if set, names one where `name` is empty. `flash`: the best of the device that stores no scores.
  static std::string_view requested(std::string_view name);
  static constexpr std::string_view kWords[] = {"flash"};
};

using Implementation = core::Implementation<Types>;

// THE list, best first, and after it what a program added.
inline const core::ImplementationList<Types>& implementations() { return Types::list(); }

// Adds implementations that the library does not carry itself (the baselines). Not while calls run.
void register_implementations(std::span<const Implementation> more);

// What may be asked for by name: `flash` and every implementation, each name once.
std::vector<std::string> known_names();

// Whether the implementation that `name` would choose promises bitwise equality; programs that name one of the others
// must ask for less than the default.
bool promises_reproducibility(std::string_view name);

// How many problems were planned so far: once each, as long as the cache of src/core/plan_cache.h keeps them.
std::int64_t plans_made();

}  // namespace fovea::attention
