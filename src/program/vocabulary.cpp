// One table of words for all readers of records. Reports generate their tables, labels and marks from it.
#include "program/vocabulary.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "program/record/record.h"
#include "verification/operation.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKinds[] = {"word", "count", "number", "seed"};  // of core::KeyKind
constexpr const char* kPlaces[] = {"title", "column", "axis"};         // of core::KeyPlace

// The key that decides this one; else the key from which it takes its value by default: its fallback, or the one that
// its formula names.
std::string followed(const core::Key& key, const core::KeyTable& table) {
  if (!key.print.follows.empty()) return std::string(key.print.follows);
  for (const core::Key& other : table.keys) {
    const bool named =
        key.formula != nullptr && key.fallback.find("(" + std::string(other.name) + ")") != std::string::npos;
    if (key.fallback == other.name || named) return std::string(other.name);
  }
  return "";
}

// What the values of a key are called.
Json value_words(const core::Key& key) {
  static const std::map<std::string_view, std::string_view> passes{{"fwd", "forward"},
                                                                   {"bwd", "backward"},
                                                                   {"e2e", "forward + backward"},
                                                                   {"step_fwd", "forward of a step"},
                                                                   {"step_rest", "backward + optimizer"},
                                                                   {"step", "step with optimizer"}};
  Json values = Json::object();
  for (const std::string_view word : key.words) values[std::string(word)] = key.name == "pass" ? passes.at(word) : word;
  if (values.contains("none")) values["none"] = "no " + std::string(key.name);
  return values;
}

Json key_words(const core::Key& key, const core::KeyTable& table) {
  Json words{{"key", key.name},
             {"kind", kKinds[static_cast<std::size_t>(key.kind)]},
             {"help", key.help},
             {"default", key.fallback},
             {"noun", key.print.noun == "=" ? key.name : key.print.noun},
             {"place", kPlaces[static_cast<std::size_t>(key.print.place)]},
             {"values", value_words(key)}};
  if (const std::string source = followed(key, table); !source.empty()) {
    words["follows"] = source;
    // A number that a word decides is not compared with it.
    if (key.kind == core::KeyKind::count && table.find(source)->kind == core::KeyKind::word) words["kind"] = "number";
  }
  const bool has_usual = key.kind == core::KeyKind::word || key.kind == core::KeyKind::seed;
  if (has_usual && !key.print.always) words["usual"] = key.fallback;
  return words;
}

Json flag(std::string_view word, std::string_view mark, bool ranked, std::string_view help) {
  return {{"word", word}, {"mark", mark}, {"ranked", ranked}, {"help", help}};
}

Json flags() {
  return {flag("impossible", "!", false, "faster than the hardware allows, so wrong"),
          flag("noisy", "n", true,
               "the samples spread widely; ranked against another cell only where their quartiles do not overlap"),
          flag("launch_bound", "l", false, "the run is so short that the fixed cost of a call dominates"),
          flag("low_probe", "p", true, "the measured peak rate was too low"),
          flag("host_bound", "h", false, "the time may include the time that the host took to enqueue"),
          flag("inaccurate", "a", true, "the answer is less accurate than this library's must be"),
          flag("few_samples", "", true, "fewer samples than asked for"),
          flag("sampled_check", "", true, "the answer was checked on sampled rows and keys")};
}

// Patterns of names, in the order of columns: baselines first, the library last.
Json implementation_kinds() {
  Json kinds = Json::array();
  const auto add = [&kinds](std::string_view names, std::string_view kind) {
    kinds.push_back({{"names", names}, {"kind", kind}});
  };
  for (const char* const name : {"naive", "vectorized", "fused"}) add(name, "baseline");
  add("reference", "reference");
  add("*", "peer");
  add("cpu.*", "library");
  add("cuda.*", "library");
  add("fovea", "library");
  for (const verification::Operation* const operation : verification::operations()) {
    for (const auto& one : operation->implementations()) {
      const bool known =
          one.name.starts_with("cpu.") || one.name.starts_with("cuda.") ||
          std::any_of(kinds.begin(), kinds.end(), [&](const Json& kind) { return kind["names"] == one.name; });
      if (!known) add(one.name, "library");
    }
  }
  return kinds;
}

}  // namespace

Json operation_words() {
  Json operations = Json::array();
  for (const verification::Operation* const operation : verification::operations()) {
    Json keys = Json::array();
    for (const core::Key& key : operation->keys().keys) keys.push_back(key_words(key, operation->keys()));
    operations.push_back({{"name", operation->name()}, {"keys", std::move(keys)}});
  }
  return operations;
}

Json vocabulary() {
  Json statuses = Json::object();
  for (const std::string_view status : kRowStatuses) statuses[std::string(status)] = status == "oom" ? "OOM" : status;
  return {{"statuses", std::move(statuses)}, {"flags", flags()}, {"implementations", implementation_kinds()}};
}

}  // namespace fovea::program
