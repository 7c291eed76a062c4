// The words that reports need besides records: a section of `fovea info --json` (docs/reports.md, "Words").
#pragma once

#include <nlohmann/json.hpp>

namespace fovea::program {

// The keys of each operation's problem line, statuses, flags, and the origin of implementations by name.
nlohmann::ordered_json vocabulary();

}  // namespace fovea::program
