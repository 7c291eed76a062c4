// A command that profiles a model of some thousand parameters.
#pragma once

#include <string>
#include <vector>

#include "verification/model/operation.h"

namespace fovea::tests {

[[maybe_unused]] inline const bool kModelsRegistered =
    (verification::register_operation(verification::model_operation()), true);

inline std::vector<std::string> small_profile(const std::vector<std::string>& more) {
  std::vector<std::string> words{"profile", "--layers",  "2",  "--width",   "32", "--heads", "2", "--hidden",
                                 "48",      "--context", "16", "--warm-up", "1",  "--steps", "4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace fovea::tests
