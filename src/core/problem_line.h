// The problem line: key=value words that describe a problem of one operation. This file: an operation's keys, their
// values, and printing. src/verification/problem_line.h parses lines and sweeps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fovea::core {

class LineValues;

enum class KeyKind : std::uint8_t { word, count, number, seed };  // seed: 64 bits

// How reports print a key.
enum class KeyPlace : std::uint8_t {
  title,   // in the titles of tables
  column,  // a column of tables
  axis,    // a column, and curves run over it
};
struct KeyPrint {
  std::string_view noun = "=";  // precedes a value; "=": the key's name; empty: the value speaks for itself
  KeyPlace place = KeyPlace::title;
  bool always = false;            // also where the value is the usual one
  std::string_view follows = {};  // the key that decides this one; empty: the one that it takes its default from
};

struct Key {
  std::string_view name;
  KeyKind kind = KeyKind::count;
  std::string_view help = {};
  // Kind word: the values, simplest first. Kind count: words that are allowed besides numbers.
  std::vector<std::string_view> words = {};
  // The value if a line leaves the key out: a text, or the name of an earlier key whose value is copied. With
  // `formula`, this text describes the formula in the help.
  std::string fallback = "1";
  std::string (*formula)(const LineValues&) = nullptr;
  // Whether lines with these values of earlier keys have this key; null: all lines have it.
  bool (*applies)(const LineValues&) = nullptr;
  KeyPrint print = {};
  // Names that people type instead; a refusal then names this key.
  std::vector<std::string_view> other_names = {};
  // Values that people type instead, and the words they mean; for refusals too.
  std::vector<std::pair<std::string_view, std::string_view>> other_words = {};
  // Words of a line that has this key, for the refusal of lines that must have it and do not; empty: lines may leave
  // the key out.
  std::string_view needed_as = {};

  Key instead_of(std::vector<std::string_view> names) && { return other_names = std::move(names), std::move(*this); }
  Key needed(std::string_view example) && { return needed_as = example, std::move(*this); }
  Key printed(const KeyPrint& so) && { return print = so, std::move(*this); }
};

// Keys that all operations have.
Key pass_key();
Key dtype_key();
Key device_key();

// Why the values are not a valid problem, and the keys to blame, likeliest first.
struct LineFault {
  std::vector<std::string_view> blamed;
  std::string problem, got, wanted, hint;
};

// The keys of an operation, in the order of its canonical line.
struct KeyTable {
  std::string_view operation;
  std::vector<Key> keys;
  std::optional<LineFault> (*fault)(const LineValues&) = nullptr;  // null: every combination of values is valid

  const Key* find(std::string_view name) const;  // null if there is none
};

// One value per key of a table, as canonical text: 4096, not 4k.
class LineValues {
 public:
  explicit LineValues(const KeyTable& table) : table_(&table), texts_(table.keys.size()) {}

  const KeyTable& table() const { return *table_; }
  // The key's text; empty if it was not set or does not apply. The table must have the key.
  const std::string& operator[](std::string_view key) const { return texts_[index(key)]; }
  std::int64_t count(std::string_view key) const;
  double number(std::string_view key) const;
  std::uint64_t seed(std::string_view key) const;

  void set(std::string_view key, std::string text) { texts_[index(key)] = std::move(text); }  // canonical text
  void set(std::string_view key, std::int64_t count) { set(key, std::to_string(count)); }
  void set(std::string_view key, double number);
  // Sets every key that is not `given` to its fallback, and clears keys that do not apply.
  void resolve(const std::vector<bool>& given);

  bool operator==(const LineValues& other) const { return table_ == other.table_ && texts_ == other.texts_; }

 private:
  std::size_t index(std::string_view key) const;

  const KeyTable* table_;
  std::vector<std::string> texts_;
};

// The text in canonical form; nullopt if it is not a value of the key.
std::optional<std::string> canonical(const Key& key, std::string_view text);
// The values that a key takes, for refusals: "fp32, bf16, fp16".
std::string wanted_of(const Key& key);
// The value that the key has if a line leaves it out, given the line's other values.
std::string fallback_of(const Key& key, const LineValues& values);

// op=NAME and every key that applies, in the table's order.
std::string line_of(const LineValues& values);

// The word of `known` that is closest to `word`, ignoring case; "" if none is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace fovea::core
