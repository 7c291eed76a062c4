// One table of words for everything that reads records: the reports generate their tables, labels and marks from it.
#include "program/vocabulary.h"

#include <string_view>

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

// `title`: names the table that a row belongs to. `column` and `axis`: tell rows of a table apart; curves run over `axis`.
// A value stands behind its noun, or alone where there is none. `follows`: not named while it says what that key says.
Json size_key(std::string_view word, std::string_view noun, std::string_view shown, std::string_view follows = "") {
  Json key{{"word", word}, {"kind", "size"}, {"noun", noun}, {"shown", shown}};
  if (!follows.empty()) key["follows"] = follows;
  return key;
}

// `values` says what stands for a value; the others stand for themselves. Titles leave out `usual`.
Json word_key(std::string_view word, std::string_view noun, std::string_view usual = "", Json values = Json::object()) {
  Json key{{"word", word}, {"kind", "word"}, {"noun", noun}, {"shown", "title"}, {"values", std::move(values)}};
  if (!usual.empty()) key["usual"] = usual;
  return key;
}

Json attention_keys() {
  const Json passes{{"fwd", "forward"}, {"bwd", "backward"}, {"e2e", "forward + backward"}};
  Json scale{{"word", "scale"}, {"kind", "number"}, {"noun", "scale"}, {"shown", "column"}, {"follows", "d"}};
  Json seed{{"word", "seed"}, {"kind", "size"}, {"noun", "seed"}, {"shown", "column"}, {"usual", "0"}};
  return {word_key("pass", "", "", passes),
          size_key("b", "batch", "title"),
          size_key("hq", "heads", "title"),
          size_key("hkv", "key heads", "title", "hq"),
          size_key("lq", "length", "axis"),
          size_key("lk", "key length", "axis", "lq"),
          size_key("d", "d", "column"),
          size_key("dv", "dv", "column", "d"),
          word_key("dtype", ""),
          word_key("mask", "", "", {{"none", "no mask"}}),
          word_key("layout", "layout", "bhld"),
          std::move(scale),
          word_key("device", "", "cpu"),
          word_key("data", "data", "normal"),
          word_key("place", "placement", "contiguous"),
          std::move(seed)};
}

Json flag(std::string_view word, std::string_view mark, bool ranked, std::string_view help) {
  return {{"word", word}, {"mark", mark}, {"ranked", ranked}, {"help", help}};
}

Json flags() {
  return {flag("impossible", "!", false, "faster than the hardware allows, so wrong"),
          flag("noisy", "n", true, "samples spread widely; ranked only where the quartiles of two cells do not overlap"),
          flag("launch_bound", "l", false, "so short that the call itself dominates"),
          flag("low_probe", "p", true, "the probe is no ceiling there: a library product or the row itself beat it"),
          flag("host_bound", "h", false, "may hold the time of the host that enqueues"),
          flag("inaccurate", "a", true, "less accurate than this library must be"),
          flag("few_samples", "", true, "fewer samples than asked for"),
          flag("sampled_check", "", true, "checked on sampled rows and keys")};
}

}  // namespace

Json vocabulary() {
  const Json kinds{{{"names", "naive"}, {"kind", "baseline"}},      {{"names", "vectorized"}, {"kind", "baseline"}},
                   {{"names", "fused"}, {"kind", "baseline"}},      {{"names", "reference"}, {"kind", "reference"}},
                   {{"names", "*"}, {"kind", "peer"}},              {{"names", "cpu.*"}, {"kind", "library"}},
                   {{"names", "cuda.*"}, {"kind", "library"}}};
  Json statuses = Json::object();
  for (const char* status : {"ok", "oom", "unsupported", "mismatch", "error", "timeout", "crashed"})
    statuses[status] = std::string_view(status) == "oom" ? "OOM" : status;
  return {{"operations", {{{"name", "attention"}, {"keys", attention_keys()}}}},
          {"statuses", std::move(statuses)},
          {"flags", flags()},
          {"implementations", kinds}};
}

}  // namespace fovea::program
