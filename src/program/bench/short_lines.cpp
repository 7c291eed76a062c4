// Words of problem lines, and which of them say nothing.
#include "program/bench/short_lines.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "fovea/error.h"
#include "verification/operation.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The words of a problem line; `parsed` is set if this program knows the operation.
struct LineWords {
  explicit LineWords(const std::string& line) : words(words_of(line)) {
    try {
      parsed = verification::parse_case(line);
    } catch (const Error&) {  // an unknown line is shown as it is
    }
  }
  // The word of the key, or "".
  std::string word(const std::string& key) const {
    const auto found = std::find_if(words.begin(), words.end(), [&](const auto& one) { return key_of(one) == key; });
    return found == words.end() ? "" : *found;
  }
  // Whether the key's value follows from the line's other words, or the operation has no such key.
  bool follows(const std::string& key) const {
    if (!parsed || key == "op") return false;
    const core::Key* const known = parsed->values.table().find(key);
    return known == nullptr || verification::is_fallback(*parsed, *known);
  }
  // Whether the line means the same without the word, and readers do not look for it (as for pass, dtype and mask).
  bool says_nothing(const std::string& key) const {
    if (!parsed) return false;
    if (key == "op") return parsed->operation == verification::operations().front();
    const core::Key* const known = parsed->values.table().find(key);
    if (known == nullptr) return true;  // a key of another operation's lines
    if (known->print.always || !known->needed_as.empty()) return false;
    return (*parsed)[key] == core::fallback_of(*known, parsed->values);
  }
  static std::string key_of(const std::string& word) { return word.substr(0, word.find('=')); }

  std::vector<std::string> words;
  std::optional<verification::Case> parsed;
};

std::vector<std::string> keys_of(const std::vector<LineWords>& lines) {
  std::vector<std::string> keys;
  for (const LineWords& line : lines) {
    for (const std::string& word : line.words) {
      if (std::find(keys.begin(), keys.end(), LineWords::key_of(word)) == keys.end())
        keys.push_back(LineWords::key_of(word));
    }
  }
  return keys;
}

}  // namespace

ShortLines shorten(const std::vector<std::string>& lines) {
  ShortLines result;
  result.lines.resize(lines.size());
  result.values.resize(lines.size());
  const std::vector<LineWords> taken(lines.begin(), lines.end());
  const auto append = [](std::string& text, const std::string& word) {
    if (!word.empty()) text += (text.empty() ? "" : " ") + word;
  };
  for (const std::string& key : keys_of(taken)) {
    const auto all = [&taken](const auto& holds) { return std::all_of(taken.begin(), taken.end(), holds); };
    const std::string first = taken.front().word(key);
    if (all([&](const auto& one) { return one.word(key) == first; })) {
      if (!all([&](const auto& one) { return one.says_nothing(key); })) append(result.common, first);
      continue;
    }
    if (all([&](const auto& one) { return one.follows(key); })) continue;
    result.keys.push_back(key);
    for (std::size_t i = 0; i < taken.size(); ++i) {
      const std::string word = taken[i].word(key);
      if (!taken[i].says_nothing(key)) append(result.lines[i], word);
      result.values[i].push_back(word.empty() ? "" : word.substr(key.size() + 1));
    }
  }
  for (auto& line : result.lines) {
    if (line.empty()) line = "this problem";
  }
  return result;
}

std::string short_line(const std::string& line) {
  const LineWords taken(line);
  std::string text;
  for (const std::string& word : taken.words) {
    if (!taken.says_nothing(LineWords::key_of(word))) text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

}  // namespace fovea::program
