// Parsing and printing of problem lines. One table of keys serves the parser, the printer and the error messages.
#include "core/problem_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <tuple>

#include "core/check.h"
#include "core/names.h"
#include "core/printable.h"
#include "core/tensor_checks.h"
#include "attention/validate.h"

namespace fovea::core {
namespace {

struct Word {
  std::string_view key, value;
  std::size_t position;  // of the key, counted from 1
};

[[noreturn]] void refuse(std::size_t position, std::string problem, std::string_view got, std::string wanted,
                         std::string hint = {}) {
  fail({Status::invalid_argument,
        "parse_problem_line",
        "problem line",
        std::move(problem) + " at position " + std::to_string(position),
        printable(got),
        std::move(wanted),
        std::move(hint),
        {}});
}

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

template <class Names>
bool choose(const Names& names, std::string_view value, std::string& target) {
  if (std::find(std::begin(names), std::end(names), value) == std::end(names)) return false;
  target = value;
  return true;
}

template <class Names>
std::string list_of(const Names& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

template <class T>
bool assign(T& target, const std::optional<T>& value) {
  if (value) target = *value;
  return value.has_value();
}

constexpr std::string_view kOps[] = {"attention"};
constexpr std::string_view kPasses[] = {"fwd", "bwd", "e2e"};
constexpr std::string_view kLayouts[] = {"bhld", "blhd"};

struct Key {
  std::string_view name;
  std::string wanted;
  bool (*parse)(Case&, std::string_view);  // false: not a value of this key
  std::string (*print)(const Case&);
};

template <std::int64_t AttentionProblem::*Field>
Key count_key(std::string_view name) {
  return {name, "a whole number of 0 or more, as 4096 or 4k",
          [](Case& c, std::string_view v) { return assign(c.problem.*Field, parse_count(v)); },
          [](const Case& c) { return std::to_string(c.problem.*Field); }};
}

const std::vector<Key>& keys() {
  // Never destroyed: refusals print the line of their problem, also while the process exits.
  static const auto& table = *new std::vector<Key>{
      {"op", list_of(kOps), [](Case& c, std::string_view v) { return choose(kOps, v, c.op); },
       [](const Case& c) { return c.op; }},
      {"pass", list_of(kPasses),
       [](Case& c, std::string_view v) {
         const auto* const found = std::find(std::begin(kPasses), std::end(kPasses), v);
         if (found == std::end(kPasses)) return false;
         c.pass = static_cast<CasePass>(found - std::begin(kPasses));
         c.problem.pass = c.pass == CasePass::bwd ? Pass::backward : Pass::forward;
         return true;
       },
       [](const Case& c) { return std::string(name_of(c.pass)); }},
      count_key<&AttentionProblem::batch>("b"),
      count_key<&AttentionProblem::heads_q>("hq"),
      count_key<&AttentionProblem::heads_kv>("hkv"),
      count_key<&AttentionProblem::len_q>("lq"),
      count_key<&AttentionProblem::len_k>("lk"),
      count_key<&AttentionProblem::dim_qk>("d"),
      count_key<&AttentionProblem::dim_v>("dv"),
      {"dtype", "fp32, bf16, fp16",
       [](Case& c, std::string_view v) {
         const bool known = assign(c.problem.dtype, dtype_of(v));
         c.problem.result_dtype = c.problem.dtype;
         return known;
       },
       [](const Case& c) { return std::string(name_of(c.problem.dtype)); }},
      {"mask", "none, causal, causal_top_left, causal_bottom_right",
       [](Case& c, std::string_view v) { return assign(c.problem.mask, mask_of(v)); },
       [](const Case& c) { return std::string(name_of(c.problem.mask)); }},
      {"layout", list_of(kLayouts),
       [](Case& c, std::string_view v) {
         c.layout = v == "blhd" ? Layout::blhd : Layout::bhld;
         return v == "blhd" || v == "bhld";
       },
       [](const Case& c) { return std::string(name_of(c.layout)); }},
      {"scale", "a finite number", [](Case& c, std::string_view v) { return assign(c.problem.scale, parse_number(v)); },
       [](const Case& c) { return print(c.problem.scale); }},
      {"device", "cpu, cuda",
       [](Case& c, std::string_view v) { return assign(c.problem.device.kind, device_kind_of(v)); },
       [](const Case& c) { return std::string(name_of(c.problem.device.kind)); }},
      {"data", list_of(kDataFamilies), [](Case& c, std::string_view v) { return choose(kDataFamilies, v, c.data); },
       [](const Case& c) { return c.data; }},
      {"place", list_of(kPlacements), [](Case& c, std::string_view v) { return choose(kPlacements, v, c.place); },
       [](const Case& c) { return c.place; }},
      {"seed", "a whole number of 0 or more",
       [](Case& c, std::string_view v) {
         const auto [end, error] = std::from_chars(v.data(), v.data() + v.size(), c.seed);
         return error == std::errc{} && end == v.data() + v.size();
       },
       [](const Case& c) { return std::to_string(c.seed); }},
  };
  return table;
}

std::vector<Word> split(std::string_view line) {
  std::vector<Word> words;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(" \t", at)) != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    const std::string_view word = line.substr(at, end - at);
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos)
      refuse(at + 1, "a word without `=`", std::string(word), "key=value words separated by spaces");
    words.push_back({word.substr(0, equals), word.substr(equals + 1), at + 1});
    at = end;
  }
  return words;
}

std::size_t key_index(const Word& word) {
  const auto found = std::find_if(keys().begin(), keys().end(), [&](const Key& key) { return key.name == word.key; });
  if (found != keys().end()) return static_cast<std::size_t>(found - keys().begin());
  std::vector<std::string> known;
  for (const Key& key : keys()) known.emplace_back(key.name);
  const std::string near = nearest_word(word.key, known);
  refuse(word.position, "unknown key", std::string(word.key), "one of " + list_of(known),
         near.empty() ? "" : "did you mean `" + near + "`?");
}

// Keys that are absent take their value from others: hkv from hq, lk from lq, dv from d, scale from d.
void resolve_defaults(Case& c, const std::vector<bool>& given) {
  const auto has = [&given](std::string_view name) {
    const auto found = std::find_if(keys().begin(), keys().end(), [name](const Key& key) { return key.name == name; });
    return bool(given[static_cast<std::size_t>(found - keys().begin())]);
  };
  AttentionProblem& p = c.problem;
  if (!has("hkv")) p.heads_kv = p.heads_q;
  if (!has("lk")) p.len_k = p.len_q;
  if (!has("dv")) p.dim_v = p.dim_qk;
  if (!has("scale")) p.scale = 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(p.dim_qk, 1)));
}

// The value among a word's list that gave the case, counted from 1: of the first of `blamed` that stands in the line.
std::size_t position_of(const std::vector<Word>& words, const Case& c, std::initializer_list<std::string_view> blamed) {
  for (const std::string_view name : blamed) {
    const auto word = std::find_if(words.begin(), words.end(), [name](const Word& one) { return one.key == name; });
    if (word == words.end()) continue;
    const Key& key = keys()[key_index(*word)];
    std::size_t start = 0;
    for (;;) {
      const std::size_t comma = std::min(word->value.find(',', start), word->value.size());
      Case with = c;
      if (key.parse(with, word->value.substr(start, comma - start)) && key.print(with) == key.print(c)) break;
      if (comma == word->value.size()) break;
      start = comma + 1;
    }
    return word->position + word->key.size() + 1 + start;
  }
  return 1;
}

void check_possible(const std::vector<Word>& words, const Case& c) {
  const AttentionProblem& p = c.problem;
  if (p.heads_q > 0 && (p.heads_kv == 0 || p.heads_q % p.heads_kv != 0)) {
    refuse(position_of(words, c, {"hkv", "hq"}), "hq must be a multiple of hkv",
           "hq=" + std::to_string(p.heads_q) + " hkv=" + std::to_string(p.heads_kv), "hq % hkv == 0",
           "leave hkv out for as many key heads as query heads");
  }
  for (const auto& [name, other, dim] : {std::tuple{"d", "dv", p.dim_qk}, {"dv", "d", p.dim_v}}) {
    if (dim < 1 || dim > kMaxDim) {
      refuse(position_of(words, c, {name, other}), "a head dimension out of range",
             std::string(name) + "=" + std::to_string(dim), "1 to " + std::to_string(kMaxDim),
             dim < 1 ? "" : "split it over several heads");
    }
  }
  if (p.mask == Mask::causal && p.len_q != p.len_k) {
    refuse(position_of(words, c, {"mask"}), "`causal` does not say how unequal lengths are aligned",
           "lq=" + std::to_string(p.len_q) + " lk=" + std::to_string(p.len_k),
           "lq == lk, or causal_top_left or causal_bottom_right", "bottom_right lets the last query see every key");
  }
  if (!sizes_fit(p)) {
    const auto [size, largest] =
        std::max({std::pair{p.batch, "b"}, {p.heads_q, "hq"}, {p.len_q, "lq"}, {p.len_k, "lk"}});
    refuse(position_of(words, c, {largest, "lq", "hq"}), "the product of the sizes overflows", line_of(c),
           "at most " + to_string(kMaxElements) + " elements and " + to_string(kMaxPairs) + " query-key pairs");
  }
}

}  // namespace

std::string_view name_of(CasePass pass) { return kPasses[static_cast<std::size_t>(pass)]; }
std::string_view name_of(Layout layout) { return kLayouts[static_cast<std::size_t>(layout)]; }

std::vector<Case> parse_sweep(std::string_view line, std::int64_t max_cases) {
  const std::vector<Word> words = split(line);
  std::vector<bool> given(keys().size(), false);
  std::vector<Case> cases(1);
  for (const Word& word : words) {
    const std::size_t index = key_index(word);
    const Key& key = keys()[index];
    if (given[index]) refuse(word.position, "duplicate key", std::string(word.key), "each key once");
    given[index] = true;
    std::vector<Case> expanded;
    std::set<std::string> values;
    std::size_t start = 0;
    do {
      const std::size_t comma = std::min(word.value.find(',', start), word.value.size());
      const std::string_view value = word.value.substr(start, comma - start);
      if (static_cast<std::int64_t>(expanded.size() + cases.size()) > max_cases) {
        refuse(word.position, "the sweep is too large", "more than " + std::to_string(max_cases) + " cases",
               "at most " + std::to_string(max_cases));
      }
      for (Case c : cases) {
        if (!key.parse(c, value)) {
          refuse(word.position + word.key.size() + 1 + start, "not a value of `" + std::string(key.name) + "`",
                 std::string(value), key.wanted);
        }
        expanded.push_back(std::move(c));
      }
      if (!values.insert(key.print(expanded.back())).second)
        refuse(word.position + word.key.size() + 1 + start, "a value that is given twice", std::string(value),
               "each value once");
      start = comma + 1;
    } while (start <= word.value.size());
    cases = std::move(expanded);
  }
  for (Case& c : cases) {
    resolve_defaults(c, given);
    check_possible(words, c);
  }
  return cases;
}

Case parse_case(std::string_view line) {
  for (const Word& word : split(line)) {
    if (const std::size_t comma = word.value.find(','); comma != std::string_view::npos) {
      refuse(word.position + word.key.size() + 1 + comma, "a list where one value is wanted", std::string(word.value),
             "a single value");
    }
  }
  return parse_sweep(line).front();
}

std::string line_of(const Case& c) {
  std::string line;
  for (const Key& key : keys()) line += (line.empty() ? "" : " ") + std::string(key.name) + "=" + key.print(c);
  return line;
}

std::string line_of(const AttentionProblem& problem) {
  Case c;
  c.problem = problem;
  c.pass = problem.pass == Pass::backward ? CasePass::bwd : CasePass::fwd;
  return line_of(c);
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kFarthest = 2;
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  std::string best;
  std::size_t best_distance = kFarthest + 1;
  for (const std::string& candidate : known) {
    std::vector<std::size_t> row(candidate.size() + 1);  // Levenshtein distance, one row at a time
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j < row.size(); ++j) {
        const std::size_t replace = diagonal + (lower(word[i - 1]) == lower(candidate[j - 1]) ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
      }
    }
    // Of two words that are mostly different, neither was meant for the other.
    if (row.back() < best_distance && 2 * row.back() <= std::max(word.size(), candidate.size())) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace fovea::core
