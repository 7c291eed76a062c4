// The parser: splits words, reads values by the operation's table, adds fallbacks, and refuses invalid combinations.
#include "verification/problem_line.h"

#include <algorithm>
#include <set>

#include "core/check.h"
#include "core/printable.h"
#include "verification/operation.h"

namespace fovea::verification {
namespace {

struct Word {
  std::string_view key, value;
  std::size_t position;  // of the key's first character, counted from 1
  std::size_t value_position() const { return position + key.size() + 1; }
};

[[noreturn]] void refuse(std::size_t position, std::string problem, std::string_view got, std::string wanted,
                         std::string hint = {}) {
  core::fail({.status = Status::invalid_argument,
              .argument = "problem line",
              .problem = std::move(problem) + " at position " + std::to_string(position),
              .got = core::printable(got),
              .wanted = std::move(wanted),
              .hint = std::move(hint)});
}

std::string hint_of(std::string_view word, const std::vector<std::string>& known) {
  const std::string near = core::nearest_word(word, known);
  return near.empty() ? "" : "did you mean `" + near + "`?";
}

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::vector<Word> split(std::string_view line) {
  std::vector<Word> words;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(" \t", at)) != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    const std::string_view word = line.substr(at, end - at);
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos)
      refuse(at + 1, "a word without `=`", word, "key=value words separated by spaces");
    words.push_back({word.substr(0, equals), word.substr(equals + 1), at + 1});
    at = end;
  }
  return words;
}

// Removes the word op= and returns its operation, or the first operation if there is none.
const Operation& operation_of(std::vector<Word>& words) {
  const auto is_op = [](const Word& word) { return word.key == "op"; };
  const auto named = std::find_if(words.begin(), words.end(), is_op);
  if (named == words.end()) return *operations().front();
  const Operation* const found = find_operation(named->value);
  if (found == nullptr) {
    std::vector<std::string> known;
    for (const Operation* one : operations()) known.emplace_back(one->name());
    refuse(named->value_position(), "not a value of `op`", named->value, list_of(known), hint_of(named->value, known));
  }
  words.erase(named);
  if (const auto again = std::find_if(words.begin(), words.end(), is_op); again != words.end())
    refuse(again->position, "duplicate key", again->key, "each key once");
  return *found;
}

constexpr std::size_t kLeastLetters = 4;  // shorter words are close to everything

// The words of a key's help that name what it is: of "query heads", but not of a sentence.
std::vector<std::string> naming_words(const core::Key& key) {
  constexpr std::size_t kMostWords = 3;
  const std::string_view phrase = key.help.substr(0, key.help.find_first_of(",;:"));
  std::vector<std::string> words;
  std::size_t count = 0;
  for (std::size_t start = 0; start < phrase.size(); ++count) {
    const std::size_t end = std::min(phrase.find(' ', start), phrase.size());
    if (end - start >= kLeastLetters) words.emplace_back(phrase.substr(start, end - start));
    start = end + 1;
  }
  return count <= kMostWords ? words : std::vector<std::string>{};
}

std::string meaning_hint(const core::Key& key) {
  const std::string_view meaning = key.help.substr(0, key.help.find(';'));
  return "did you mean `" + std::string(key.name) + "`, " + std::string(meaning) + "?";
}

// Keys are short, so people also type what one means: `heads` for hq. Otherwise an option of the verbs, a key of
// another operation, unless it is as short as a typing error, or the nearest key or meaning.
std::string key_hint(std::string_view word, const core::KeyTable& table, const std::vector<std::string>& names) {
  for (const core::Key& key : table.keys) {
    const std::vector<std::string> words = naming_words(key);
    if (std::find(words.begin(), words.end(), word) != words.end()) return meaning_hint(key);
    if (std::find(key.other_names.begin(), key.other_names.end(), word) != key.other_names.end())
      return meaning_hint(key);
  }
  for (const std::string_view option : {"threads", "impl", "timing"}) {
    if (word == option) return "it is an option: --" + std::string(option);
  }
  for (const Operation* one : operations()) {
    if (word.size() >= kLeastLetters && one->keys().find(word) != nullptr)
      return "`" + std::string(word) + "` is a key of op=" + std::string(one->name());
  }
  std::vector<std::string> known = names;
  for (const core::Key& key : table.keys) {
    for (std::string& meaning : naming_words(key)) known.push_back(std::move(meaning));
  }
  const std::string near = core::nearest_word(word, known);
  if (near.empty()) return {};
  if (std::find(names.begin(), names.end(), near) != names.end()) return "did you mean `" + near + "`?";
  return meaning_hint(*std::find_if(table.keys.begin(), table.keys.end(), [&near](const core::Key& key) {
    const std::vector<std::string> words = naming_words(key);
    return std::find(words.begin(), words.end(), near) != words.end();
  }));
}

std::string value_hint(std::string_view text, const core::Key& key) {
  for (const auto& [typed, meant] : key.other_words) {
    if (text == typed) return "did you mean `" + std::string(meant) + "`?";
  }
  return hint_of(text, {key.words.begin(), key.words.end()});
}

const core::Key& key_of(const Word& word, const core::KeyTable& table) {
  if (const core::Key* const key = table.find(word.key)) return *key;
  std::vector<std::string> known{"op"};
  for (const core::Key& key : table.keys) known.emplace_back(key.name);
  refuse(word.position, "unknown key", word.key, "one of " + list_of(known), key_hint(word.key, table, known));
}

struct ListedValue {
  std::string_view text;
  std::size_t position;
};

std::vector<ListedValue> values_of(const Word& word) {
  std::vector<ListedValue> values;
  for (std::size_t start = 0; start <= word.value.size();) {
    const std::size_t comma = std::min(word.value.find(',', start), word.value.size());
    values.push_back({word.value.substr(start, comma - start), word.value_position() + start});
    start = comma + 1;
  }
  return values;
}

// Refuses lines without a key that has no usual value.
void check_needed(std::string_view line, const core::KeyTable& table, const std::vector<bool>& given) {
  for (std::size_t n = 0; n < given.size(); ++n) {
    const core::Key& key = table.keys[n];
    if (given[n] || key.needed_as.empty()) continue;
    const std::string name(key.name);
    core::fail({.status = Status::invalid_argument,
                .argument = "problem line",
                .problem = "op=" + std::string(table.operation) + " must say `" + name + "`",
                .got = core::printable(line),
                .wanted = name + "=N, " + std::string(key.help),
                .hint = "such as " + std::string(key.needed_as)});
  }
}

// One copy of every case for each value of the word.
std::vector<Case> expanded(const std::vector<Case>& cases, const Word& word, const core::Key& key,
                           std::int64_t max_cases) {
  std::vector<Case> more;
  std::set<std::string> seen;
  for (const auto& [text, position] : values_of(word)) {
    if (static_cast<std::int64_t>(more.size() + cases.size()) > max_cases) {
      refuse(word.position, "the sweep is too large", "more than " + std::to_string(max_cases) + " cases",
             "at most " + std::to_string(max_cases));
    }
    const auto value = core::canonical(key, text);
    if (!value) {
      refuse(position, "not a value of `" + std::string(key.name) + "`", text, core::wanted_of(key),
             value_hint(text, key));
    }
    if (!seen.insert(*value).second) refuse(position, "a value that is given twice", text, "each value once");
    for (const Case& c : cases) more.push_back(c.with(key.name, *value));
  }
  return more;
}

// The position of the value to blame. It belongs to the first key of `blamed` that the line has; in a list, it is the
// case's value.
std::size_t position_of(const std::vector<Word>& words, const Case& c, const std::vector<std::string_view>& blamed) {
  for (const std::string_view name : blamed) {
    const auto word = std::find_if(words.begin(), words.end(), [name](const Word& one) { return one.key == name; });
    if (word == words.end()) continue;
    const core::Key& key = *c.values.table().find(name);
    const std::vector<ListedValue> values = values_of(*word);
    const auto given = std::find_if(values.begin(), values.end(),
                                    [&](const auto& one) { return core::canonical(key, one.text) == c[name]; });
    return given == values.end() ? word->value_position() : given->position;
  }
  return 1;
}

void check_possible(const std::vector<Word>& words, const Case& c) {
  for (const Word& word : words) {
    if (!c[word.key].empty()) continue;
    refuse(word.position, "`" + std::string(word.key) + "` has no meaning here", word.value, "a line without it");
  }
  const core::KeyTable& table = c.values.table();
  const auto fault = table.fault == nullptr ? std::nullopt : table.fault(c.values);
  if (fault) refuse(position_of(words, c, fault->blamed), fault->problem, fault->got, fault->wanted, fault->hint);
}

constexpr std::size_t kHelpIndent = 10, kHelpWidth = 80;

// The key's name, then its help from one column on, in lines that a terminal of 80 columns shows whole.
std::string help_of(const core::Key& key) {
  std::string words(key.help);
  if (key.kind == core::KeyKind::word) words += std::string(key.help.empty() ? "" : ": ") + core::wanted_of(key);
  words += " (" + (key.needed_as.empty() ? key.fallback : "required") + ")";
  std::string text, line = "  " + std::string(key.name);
  line.resize(std::max<std::size_t>(line.size() + 1, kHelpIndent), ' ');
  for (std::size_t start = 0; start < words.size();) {
    const std::size_t end = std::min(words.find(' ', start), words.size());
    if (line.size() + end - start > kHelpWidth) {
      text += line.substr(0, line.size() - 1) + "\n";
      line.assign(kHelpIndent, ' ');
    }
    line += words.substr(start, end - start) + (end < words.size() ? " " : "");
    start = end + 1;
  }
  return text + line + "\n";
}

}  // namespace

std::vector<Case> parse_sweep(std::string_view line, std::int64_t max_cases) {
  std::vector<Word> words = split(line);
  const Operation& operation = operation_of(words);
  const core::KeyTable& table = operation.keys();
  std::vector<bool> given(table.keys.size(), false);
  std::vector<Case> cases{Case(operation)};
  for (const Word& word : words) {
    const core::Key& key = key_of(word, table);
    const auto index = static_cast<std::size_t>(&key - table.keys.data());
    if (given[index]) refuse(word.position, "duplicate key", word.key, "each key once");
    given[index] = true;
    cases = expanded(cases, word, key, max_cases);
  }
  check_needed(line, table, given);
  for (Case& c : cases) {
    c.values.resolve(given);
    check_possible(words, c);
  }
  return cases;
}

Case parse_case(std::string_view line) {
  for (const Word& word : split(line)) {
    if (const std::size_t comma = word.value.find(','); comma != std::string_view::npos)
      refuse(word.value_position() + comma, "a list where one value is wanted", word.value, "a single value");
  }
  return parse_sweep(line).front();
}

std::vector<Case> with_every_input(const std::vector<Case>& cases) {
  std::vector<Case> all;
  for (const Case& c : cases) {
    for (const Family& family : c.operation->families()) {
      for (const std::string_view place : kPlacements) {
        all.push_back(c.with("data", std::string(family.name)).with("place", std::string(place)));
        all.back().values.set("seed", std::to_string(c.seed() + all.size() - 1));
      }
    }
  }
  return all;
}

std::string line_of(const Case& c) { return core::line_of(c.values); }

std::string fault_of(const Case& c) {
  const core::KeyTable& table = c.values.table();
  const auto fault = table.fault == nullptr ? std::nullopt : table.fault(c.values);
  return fault ? fault->problem : "";
}

bool is_fallback(const Case& c, const core::Key& key) {
  const bool follows = key.formula != nullptr || c.values.table().find(key.fallback) != nullptr;
  return key.needed_as.empty() && follows && c[key.name] == core::fallback_of(key, c.values);
}

std::string problem_line_help() {
  std::string text =
      "A problem line is a list of key=value words in any order; 4k means 4096.\nDefaults are in parentheses.\n";
  for (const Operation* one : operations()) {
    text += "With op=" + std::string(one->name()) + (one == operations().front() ? ", the default:\n" : ":\n");
    for (const core::Key& key : one->keys().keys) text += help_of(key);
  }
  return text + "In a sweep a key may have several values: \"lq=1k,2k,4k d=64,128 pass=fwd,bwd\" is\ntwelve problems.";
}

}  // namespace fovea::verification
