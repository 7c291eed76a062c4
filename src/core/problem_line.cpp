// Values of keys: canonical text, fallbacks, printing.
#include "core/problem_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace fovea::core {
namespace {

// "4096" or "4k"; nothing else: no sign, no exponent, no trailing characters.
std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0, factor = 1;
  if (!text.empty() && text.back() == 'k') {
    factor = 1024;
    text.remove_suffix(1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0 ||
      __builtin_mul_overflow(value, factor, &value))
    return std::nullopt;
  return value;
}

std::optional<std::uint64_t> parse_seed(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string print(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// How many letters to insert, remove or replace, or neighbours to exchange, to get from one word to the other. Ignores
// case.
std::size_t edits(std::string_view from, std::string_view to) {
  const auto same = [&](std::size_t i, std::size_t j) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    return lower(from[i - 1]) == lower(to[j - 1]);
  };
  std::vector<std::size_t> two_before, before, row(to.size() + 1);  // row i: from i letters of `from` to those of `to`
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    two_before = std::exchange(before, row);
    row[0] = i;
    for (std::size_t j = 1; j < row.size(); ++j) {
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + (same(i, j) ? 0 : 1)});
      if (i > 1 && j > 1 && same(i, j - 1) && same(i - 1, j)) row[j] = std::min(row[j], two_before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

Key pass_key() {
  Key key{"pass", KeyKind::word, "forward, backward, or forward then backward", {"fwd", "bwd", "e2e"}, "fwd"};
  key.other_words = {{"forward", "fwd"}, {"backward", "bwd"}, {"total", "e2e"}, {"both", "e2e"}};
  return std::move(key).printed({.noun = "", .always = true});
}

Key dtype_key() {
  Key key{"dtype", KeyKind::word, "element type", {"fp32", "bf16", "fp16"}, "fp32"};
  key.other_words = {
      {"float32", "fp32"}, {"float", "fp32"}, {"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"}};
  return std::move(key).printed({.noun = "", .always = true});
}

Key device_key() {
  Key key{"device", KeyKind::word, "where the tensors are", {"cpu", "cuda"}, "cpu"};
  key.other_words = {{"gpu", "cuda"}};
  return std::move(key).printed({.noun = ""});
}

const Key* KeyTable::find(std::string_view name) const {
  const auto found = std::find_if(keys.begin(), keys.end(), [name](const Key& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

std::size_t LineValues::index(std::string_view key) const {
  const Key* const found = table_->find(key);
  if (found == nullptr) throw std::logic_error(std::string(table_->operation) + " has no key " + std::string(key));
  return static_cast<std::size_t>(found - table_->keys.data());
}

std::int64_t LineValues::count(std::string_view key) const { return parse_count((*this)[key]).value_or(0); }
double LineValues::number(std::string_view key) const { return parse_number((*this)[key]).value_or(0); }
std::uint64_t LineValues::seed(std::string_view key) const { return parse_seed((*this)[key]).value_or(0); }
void LineValues::set(std::string_view key, double number) { set(key, print(number)); }

void LineValues::resolve(const std::vector<bool>& given) {
  for (std::size_t n = 0; n < texts_.size(); ++n) {
    const Key& key = table_->keys[n];
    if (key.applies != nullptr && !key.applies(*this)) {
      texts_[n].clear();
    } else if (!given[n]) {
      texts_[n] = fallback_of(key, *this);
    }
  }
}

std::optional<std::string> canonical(const Key& key, std::string_view text) {
  if (std::find(key.words.begin(), key.words.end(), text) != key.words.end()) return std::string(text);
  switch (key.kind) {
    case KeyKind::word:
      return std::nullopt;
    case KeyKind::count:
      if (const auto count = parse_count(text)) return std::to_string(*count);
      return std::nullopt;
    case KeyKind::seed:
      if (const auto seed = parse_seed(text)) return std::to_string(*seed);
      return std::nullopt;
    case KeyKind::number:
      if (const auto number = parse_number(text)) return print(*number);
      return std::nullopt;
  }
  return std::nullopt;
}

std::string wanted_of(const Key& key) {
  if (key.kind == KeyKind::count) {
    std::string text = "a whole number of 0 or more, as 4096 or 4k";
    for (const std::string_view word : key.words) text += ", or " + std::string(word);
    return text;
  }
  if (key.kind == KeyKind::number) return "a finite number";
  if (key.kind == KeyKind::seed) return "a whole number of 0 or more";
  std::string text;
  for (const std::string_view word : key.words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

std::string fallback_of(const Key& key, const LineValues& values) {
  if (key.formula != nullptr) return key.formula(values);
  return values.table().find(key.fallback) != nullptr ? values[key.fallback] : key.fallback;
}

std::string line_of(const LineValues& values) {
  std::string line = "op=" + std::string(values.table().operation);
  for (const Key& key : values.table().keys) {
    const std::string& text = values[key.name];
    if (!text.empty()) line += " " + std::string(key.name) + "=" + text;
  }
  return line;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kFarthest = 2;
  std::string best;
  std::size_t best_distance = kFarthest + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edits(word, candidate);
    // A word that differs in more than half of its letters is not a likely typing error.
    const bool is_nearer = distance < best_distance || (distance == best_distance && candidate.starts_with(word) &&
                                                        !best.starts_with(word));  // avx: rather avx2 than amx
    if (is_nearer && 2 * distance <= std::max(word.size(), candidate.size())) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace fovea::core
