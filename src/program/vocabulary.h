// The words that reports need and records do not hold: a section of `fovea info --json` (docs/reports.md, "Words").
#pragma once

#include <nlohmann/json.hpp>

namespace fovea::program {

// The keys of each operation's problem line, statuses, flags, and who stands behind an implementation's name.
nlohmann::ordered_json vocabulary();

}  // namespace fovea::program
