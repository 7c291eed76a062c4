// One table of words for all readers of records. Reports generate their tables, labels and marks from it.
#include "program/vocabulary.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "program/record/record.h"
#include "verification/operation.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

// How reports print a key if its name is not enough. `noun` precedes a value; empty if values need no noun. `shown`:
// `title` appears in a table's title, `column` and `axis` become columns of its rows, and curves run over `axis`.
struct Printed {
  std::string_view key, noun, shown;
};
constexpr Printed kPrinted[] = {{"pass", "", "title"},
                                {"b", "batch", "title"},
                                {"hq", "heads", "title"},
                                {"hkv", "key heads", "title"},
                                {"lq", "length", "axis"},
                                {"lk", "key length", "axis"},
                                {"d", "d", "column"},
                                {"dv", "dv", "column"},
                                {"dtype", "", "title"},
                                {"mask", "", "title"},
                                {"scale", "scale", "column"},
                                {"device", "", "title"},
                                {"place", "placement", "title"},
                                {"seed", "seed", "column"}};
constexpr std::string_view kAlwaysNamed[] = {"pass", "dtype", "mask"};

std::string_view kind_of(const core::Key& key) {
  return key.kind == core::KeyKind::word ? "word" : key.kind == core::KeyKind::number ? "number" : "size";
}

// The key from which this one takes its value by default: its fallback, or the one that its formula names.
std::string followed(const core::Key& key, const core::KeyTable& table) {
  for (const core::Key& other : table.keys) {
    const bool named =
        key.formula != nullptr && key.fallback.find("(" + std::string(other.name) + ")") != std::string::npos;
    if (key.fallback == other.name || named) return std::string(other.name);
  }
  return "";
}

Json key_words(const core::Key& key, const core::KeyTable& table) {
  const auto* const printed = std::find_if(std::begin(kPrinted), std::end(kPrinted),
                                           [&key](const Printed& one) { return one.key == key.name; });
  const bool known = printed != std::end(kPrinted);
  Json values = Json::object();
  for (const std::string_view word : key.words) values[std::string(word)] = word;
  if (key.name == "pass") values = {{"fwd", "forward"}, {"bwd", "backward"}, {"e2e", "forward + backward"}};
  if (values.contains("none")) values["none"] = "no " + std::string(key.name);
  Json words{{"word", key.name},
             {"kind", kind_of(key)},
             {"noun", known ? printed->noun : key.name},
             {"shown", known ? printed->shown : "title"},
             {"values", std::move(values)}};
  if (const std::string source = followed(key, table); !source.empty()) words["follows"] = source;
  const bool named = std::find(std::begin(kAlwaysNamed), std::end(kAlwaysNamed), key.name) != std::end(kAlwaysNamed);
  const bool optional = key.kind == core::KeyKind::word || key.kind == core::KeyKind::seed;
  if (optional && !named) words["usual"] = key.fallback;
  return words;
}

Json operation_words() {
  Json operations = Json::array();
  for (const verification::Operation* const operation : verification::operations()) {
    Json keys = Json::array();
    for (const core::Key& key : operation->keys().keys) keys.push_back(key_words(key, operation->keys()));
    operations.push_back({{"name", operation->name()}, {"keys", std::move(keys)}});
  }
  return operations;
}

Json flag(std::string_view word, std::string_view mark, bool ranked, std::string_view help) {
  return {{"word", word}, {"mark", mark}, {"ranked", ranked}, {"help", help}};
}

Json flags() {
  return {
      flag("impossible", "!", false, "faster than the hardware allows, so wrong"),
      flag("noisy", "n", true, "samples spread widely; ranked only where the quartiles of two cells do not overlap"),
      flag("launch_bound", "l", false, "so short that the fixed cost of a call dominates"),
      flag("low_probe", "p", true, "a library product, or the row itself, beat the probe of the ceiling"),
      flag("host_bound", "h", false, "may include the time that the host took to enqueue"),
      flag("inaccurate", "a", true, "less accurate than this library must be"),
      flag("few_samples", "", true, "fewer samples than asked for"),
      flag("sampled_check", "", true, "checked on sampled rows and keys")};
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

Json vocabulary() {
  Json statuses = Json::object();
  for (const std::string_view status : kRowStatuses) statuses[std::string(status)] = status == "oom" ? "OOM" : status;
  return {{"operations", operation_words()},
          {"statuses", std::move(statuses)},
          {"flags", flags()},
          {"implementations", implementation_kinds()}};
}

}  // namespace fovea::program
