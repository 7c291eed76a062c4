// A floating-point number counts as whole only where neighbouring ones are at most 1 apart.
#include "program/record/whole_number.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace fovea::program {

std::optional<std::int64_t> whole_number(const nlohmann::ordered_json& value) {
  constexpr double kLargest = 9007199254740992;  // 2^53
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > kMost) return std::nullopt;
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (std::abs(number) > kLargest || number != std::trunc(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace fovea::program
