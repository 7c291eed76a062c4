// Escapes of control characters.
#include "core/printable.h"

namespace fovea::core {
namespace {

std::string hexadecimal(unsigned char c) {
  constexpr char digits[] = "0123456789abcdef";
  return {'\\', 'x', digits[c >> 4], digits[c & 15]};
}

std::string escaped(std::string_view text, bool keep_lines) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (c == '\n') {
      result += keep_lines ? "\n" : "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (c < 0x20 || c == 0x7f) {
      result += hexadecimal(c);
    } else if (c == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 to U+009F in UTF-8 are controls as well
      result += hexadecimal(c) + hexadecimal(next);
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, false); }
std::string printable_lines(std::string_view text) { return escaped(text, true); }

}  // namespace fovea::core
