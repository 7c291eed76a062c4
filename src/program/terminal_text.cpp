// Widths, line breaks, padding.
#include "program/terminal_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace fovea::program {
namespace {

constexpr std::size_t kLeastWrapped = 20;  // a last column of fewer columns is not wrapped: it would be unreadable

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }

std::string wrapped_line(std::string_view line, std::size_t indent, std::size_t taken) {
  std::string text;
  std::size_t used = taken;
  for (std::size_t start = 0; start < line.size();) {
    // Spaces before a word belong to it, so that an indented first line keeps its indent.
    const std::size_t word = std::min(line.find_first_not_of(' ', start), line.size());
    const std::size_t end = std::min(line.find(' ', word), line.size());
    std::string_view piece = line.substr(start, end - start);
    if (start > 0 && used + columns_of(piece) > kTerminalColumns) {
      text += "\n" + std::string(indent, ' ');
      used = indent;
      piece = line.substr(word, end - word);
    }
    text += piece;
    used += columns_of(piece);
    start = end;
  }
  return text;
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      i = std::min(text.find('m', i), text.size());
    } else if (starts_character(text[i])) {
      ++columns;
    }
  }
  return columns;
}

std::size_t terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return kTerminalColumns;
  return size.ws_col;
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t taken) {
  std::string result;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    if (start > 0) result += "\n";
    result += wrapped_line(text.substr(start, end - start), indent, start == 0 ? taken : 0);
    start = end + 1;
  }
  return result;
}

std::string cut_to(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  for (std::size_t seen = 0; end < text.size(); ++end) {
    if (starts_character(text[end]) && ++seen > columns) break;
  }
  return std::string(text.substr(0, end));
}

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::size_t last = 0;  // where the last column starts
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) last += widths[i] + 2;
  const bool wraps = last + kLeastWrapped <= kTerminalColumns;
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += wraps && i + 1 == widths.size() ? wrapped(row[i], last, last) : row[i];
      if (i + 1 < row.size()) line.append(widths[i] - columns_of(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace fovea::program
