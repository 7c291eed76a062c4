// Choosing an implementation: the first of the list that accepts, or the one that was named.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/implementation.h"

namespace fovea::core {

// What may be asked for by name: `flash` and every implementation, each name once.
std::vector<std::string> known_names();

// Throws Error(invalid_argument) if what is asked for, by `name` or by FOVEA_IMPL, is none of them.
void check_name(std::string_view name, const AttentionProblem& problem, std::string_view call);

// Every implementation's verdict, in list order, also of those after the chosen one. `name` may be empty, the name of
// one implementation, or `flash`: the best one of the device that stores no scores. FOVEA_IMPL, if set, names one where
// `name` is empty. `chosen` receives the first that accepts, or null.
std::vector<Explanation::Step> walk(const AttentionProblem& problem, std::string_view name,
                                    const Implementation** chosen);

// Throws Error(unsupported) with every refusal if none accepts, Error(invalid_argument) if the name is unknown.
const Implementation& choose(const AttentionProblem& problem, std::string_view name, std::string_view call);

// Whether the implementation that `name` would choose promises bitwise equality; programs that name one of the others
// must ask for less than the default.
bool promises_reproducibility(std::string_view name);

[[noreturn]] void refuse_buffer(const AttentionProblem& problem, std::string_view call, std::string_view argument,
                                std::int64_t got, std::int64_t wanted);

}  // namespace fovea::core
