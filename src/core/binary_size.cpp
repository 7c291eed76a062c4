// Bytes in the largest unit of which there is one.
#include "core/binary_size.h"

#include <charconv>
#include <iterator>

namespace fovea::core {

std::string binary_size(std::int64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  char text[32];  // not printf, which writes the decimal comma of the program's locale
  const int decimals = value < 10 && unit > 0 ? 1 : 0;
  char* const end = std::to_chars(std::begin(text), std::end(text), value, std::chars_format::fixed, decimals).ptr;
  return std::string(text, end) + " " + units[unit];
}

}  // namespace fovea::core
