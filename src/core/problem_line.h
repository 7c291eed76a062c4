// The problem line: key=value words that name a problem of one operation. Here: which keys an operation has, their
// values, and how they print. Programs parse lines and sweeps (src/verification/problem_line.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::core {

class LineValues;

enum class KeyKind : std::uint8_t { word, count, number, seed };  // seed: 64 bits

struct Key {
  std::string_view name;
  KeyKind kind = KeyKind::count;
  std::string_view help = {};
  // Of kind word: its values, the simplest first. Of kind count: words that it takes beside numbers.
  std::vector<std::string_view> words = {};
  // What a line without the key means: a value, or the name of an earlier key whose value it takes. With a formula,
  // the words by which help names it.
  std::string fallback = "1";
  std::string (*formula)(const LineValues&) = nullptr;
  // Whether the key belongs to lines with these values of earlier keys; null: to all.
  bool (*applies)(const LineValues&) = nullptr;
};

// Why no problem has these values, and the keys to blame, the likeliest first.
struct LineFault {
  std::vector<std::string_view> blamed;
  std::string problem, got, wanted, hint;
};

// The keys of an operation, in the order of its canonical line.
struct KeyTable {
  std::string_view operation;
  std::vector<Key> keys;
  std::optional<LineFault> (*fault)(const LineValues&) = nullptr;  // null: every combination of values is a problem

  const Key* find(std::string_view name) const;  // null if there is none
};

// One value per key of a table, as canonical text: 4k is 4096.
class LineValues {
 public:
  explicit LineValues(const KeyTable& table) : table_(&table), texts_(table.keys.size()) {}

  const KeyTable& table() const { return *table_; }
  // The key's text; empty where it was not set or does not apply. The table must have the key.
  const std::string& operator[](std::string_view key) const { return texts_[index(key)]; }
  std::int64_t count(std::string_view key) const;
  double number(std::string_view key) const;
  std::uint64_t seed(std::string_view key) const;

  void set(std::string_view key, std::string text) { texts_[index(key)] = std::move(text); }  // canonical text
  void set(std::string_view key, std::int64_t count) { set(key, std::to_string(count)); }
  void set(std::string_view key, double number);
  // Gives every key that is not `given` its fallback, and empties those that do not apply.
  void resolve(const std::vector<bool>& given);

  bool operator==(const LineValues& other) const { return table_ == other.table_ && texts_ == other.texts_; }

 private:
  std::size_t index(std::string_view key) const;

  const KeyTable* table_;
  std::vector<std::string> texts_;
};

// The text in canonical form; nothing if it is no value of the key.
std::optional<std::string> canonical(const Key& key, std::string_view text);
// What a key takes, for refusals: "fp32, bf16, fp16".
std::string wanted_of(const Key& key);
// What the key means where a line leaves it out, by the line's other values.
std::string fallback_of(const Key& key, const LineValues& values);

// op=NAME and every key that applies, in the table's order.
std::string line_of(const LineValues& values);

// The word of `known` that is closest to `word` in any case of letters, or "" if none is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace fovea::core
