// Whole numbers in JSON, which has one kind of number only.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace fovea::program {

// Nullopt for a fraction, for a number that 64 bits cannot hold, and for what is no number. 2.0 is whole.
std::optional<std::int64_t> whole_number(const nlohmann::ordered_json& value);

}  // namespace fovea::program
