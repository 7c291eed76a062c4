// The implementations of Linear: their type and the list.
#pragma once

#include <string>
#include <string_view>

#include "core/implementation.h"
#include "linear/plan.h"

namespace fovea::linear {

// What the templates of src/core need to know.
struct Types {
  using Problem = LinearProblem;
  using ForwardTensors = LinearForwardTensors;
  using BackwardTensors = LinearBackwardTensors;
  static std::string line(const LinearProblem& problem);
  static std::size_t hash(const LinearProblem& problem);
  // Who names an implementation takes it as it is; those that are not reproducible run only when named.
  static bool asks_reproducible(const LinearProblem&) { return false; }
  // In the order in which a call tries them: those on GPUs, then those on the CPU, the engine's own product last of
  // them.
  static core::ImplementationList<Types>& list();
  static std::string_view requested(std::string_view name) { return name; }
};

using Implementation = core::Implementation<Types>;

// How many problems were planned so far: once each, as long as the cache of src/core/plan_cache.h keeps them.
std::int64_t plans_made();

}  // namespace fovea::linear
