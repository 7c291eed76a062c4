// A checker for the part of JSON Schema that python/fovea_report/record.schema.json uses; any other keyword is an
// error.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fovea::tests {

// What is wrong with `value`, with its path; empty if it fits.
std::string schema_violation(const nlohmann::json& schema, const nlohmann::json& value);

}  // namespace fovea::tests
