// The words that reports need besides records: sections of `fovea info --json` (docs/reports.md, "Words").
#pragma once

#include <nlohmann/json.hpp>

namespace fovea::program {

// The keys of each operation's problem line, as its help and as reports print them.
nlohmann::ordered_json operation_words();
// Statuses, flags, and the origin of implementations by name.
nlohmann::ordered_json vocabulary();

}  // namespace fovea::program
