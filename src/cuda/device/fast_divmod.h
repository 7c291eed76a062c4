// Division by a number known on the host: one product and one shift (Granlund and Montgomery, PLDI 1994).
#pragma once

#include <cstdint>

namespace fovea::cuda {

struct FastDivmod {
  std::uint32_t multiplier = std::uint32_t{1} << 31;
  int shift = 31;
};

// Requires 1 <= value <= 2^31.
constexpr FastDivmod fast_divmod(std::int64_t value) {
  int bits = 0;
  while ((std::int64_t{1} << bits) < value) ++bits;
  const std::uint64_t power = std::uint64_t{1} << (31 + bits);
  const auto divided_by = static_cast<std::uint64_t>(value);
  return {static_cast<std::uint32_t>((power + divided_by - 1) / divided_by), 31 + bits};
}

// floor(n / d), for n below 2^31.
constexpr std::uint32_t quotient(std::uint32_t n, const FastDivmod& d) {
  return static_cast<std::uint32_t>(std::uint64_t{n} * d.multiplier >> d.shift);
}

}  // namespace fovea::cuda
