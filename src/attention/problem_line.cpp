// Attention's keys: sizes, types, mask, layout; and the refusals of invalid combinations.
#include "attention/problem_line.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "attention/mask.h"
#include "attention/validate.h"
#include "core/check.h"
#include "core/names.h"
#include "core/never_destroyed.h"
#include "core/tensor_checks.h"

namespace fovea::core {
namespace {

bool is_window(const LineValues& values) { return find_mask_word(values["mask"])->is_window; }

std::string softmax_scale(const LineValues& values) {
  LineValues scaled = values;
  scaled.set("scale", 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(values.count("d"), 1))));
  return scaled["scale"];
}

LineFault overflow_of(const AttentionProblem& p, const LineValues& values) {
  const auto [size, largest] = std::max({std::pair{p.batch, "b"}, {p.heads_q, "hq"}, {p.len_q, "lq"}, {p.len_k, "lk"}});
  return {{largest, "lq", "hq"},
          "the product of the sizes overflows",
          line_of(values),
          "at most " + to_string(kMaxElements) + " elements and " + to_string(kMaxPairs) + " query-key pairs",
          ""};
}

std::int64_t bound_of(const LineValues& values, std::string_view key) {
  return values[key] == kUnlimitedWord ? Mask::kUnlimited : values.count(key);
}

Mask mask_of(const LineValues& values) {
  const MaskWord& word = *find_mask_word(values["mask"]);
  if (!word.is_window) return word.mask;
  return {word.mask.alignment, bound_of(values, "left"), bound_of(values, "right")};
}

std::vector<std::string_view> mask_names() {
  std::vector<std::string_view> names;
  for (const MaskWord& word : mask_words()) names.push_back(word.word);
  return names;
}

// Refuses invalid masks, and windows that another word names: every problem has exactly one line.
std::optional<LineFault> mask_fault_of(const AttentionProblem& p, const LineValues& values) {
  for (const std::string_view key : {"left", "right"}) {
    const bool fits = !is_window(values) || values[key] == kUnlimitedWord || values.count(key) <= Mask::kLargestBound;
    if (!fits)
      return LineFault{{key},
                       "a window's bound out of range",
                       values[key],
                       "0 to 2^62 keys, or unlimited",
                       "left and right count keys beside the row's own"};
  }
  if (auto fault = fault_of(p.mask, p.len_q, p.len_k, kLineLengths))
    return LineFault{{"mask"}, fault->problem, fault->got, fault->wanted, fault->hint};
  if (is_window(values) && !word_of(p.mask).is_window)
    return LineFault{{"mask"},
                     "a window that has a name",
                     "left=" + values["left"] + " right=" + values["right"],
                     "mask=" + std::string(name_of(p.mask)),
                     "unlimited to the left with right=0 is causal"};
  return std::nullopt;
}

std::optional<LineFault> fault_of(const LineValues& values) {
  const AttentionProblem p = attention_problem(values);
  if (p.heads_q > 0 && (p.heads_kv == 0 || p.heads_q % p.heads_kv != 0)) {
    return LineFault{{"hkv", "hq"},
                     "hq must be a multiple of hkv",
                     "hq=" + std::to_string(p.heads_q) + " hkv=" + std::to_string(p.heads_kv),
                     "hq % hkv == 0",
                     "leave hkv out for as many key heads as query heads"};
  }
  for (const auto& [name, other, dim] : {std::tuple{"d", "dv", p.dim_qk}, {"dv", "d", p.dim_v}}) {
    if (dim >= 1 && dim <= kMaxDim) continue;
    return LineFault{{name, other},
                     "a head dimension out of range",
                     std::string(name) + "=" + std::to_string(dim),
                     "1 to " + std::to_string(kMaxDim),
                     dim < 1 ? "" : "split it over several heads"};
  }
  if (auto fault = mask_fault_of(p, values)) return fault;
  if (!sizes_fit(p)) return overflow_of(p, values);
  return std::nullopt;
}

}  // namespace

const KeyTable& attention_keys() {
  static const auto& table = never_destroyed<KeyTable>(KeyTable{
      "attention",
      {pass_key(),
       Key{"b", KeyKind::count, "batch"}.printed({.noun = "batch"}),
       Key{"hq", KeyKind::count, "query heads"}.printed({.noun = "heads"}),
       Key{"hkv", KeyKind::count, "key heads, a divisor of hq", {}, "hq"}.printed({.noun = "key heads"}),
       Key{"lq", KeyKind::count, "query length"}.printed({.noun = "length", .place = KeyPlace::axis}),
       Key{"lk", KeyKind::count, "key length", {}, "lq"}.printed({.noun = "key length", .place = KeyPlace::axis}),
       Key{"d", KeyKind::count, "head dimension of q and k"}.printed({.place = KeyPlace::column}),
       Key{"dv", KeyKind::count, "head dimension of v", {}, "d"}.printed({.place = KeyPlace::column}),
       dtype_key(),
       Key{"mask", KeyKind::word, "which keys a query sees; causal and window need lq = lk", mask_names(), "none"}
           .printed({.noun = "", .always = true}),
       {.name = "left",
        .help = "of a window: keys that a row sees before its own",
        .words = {kUnlimitedWord},
        .fallback = std::string(kUnlimitedWord),
        .applies = is_window},
       {.name = "right",
        .help = "of a window: keys that a row sees after its own",
        .words = {kUnlimitedWord},
        .fallback = std::string(kUnlimitedWord),
        .applies = is_window},
       {"layout", KeyKind::word, "order of the dimensions in memory", {"bhld", "blhd"}, "bhld"},
       Key{"scale", KeyKind::number, "multiplies the scores", {}, "1/sqrt(d)", softmax_scale}.printed(
           {.place = KeyPlace::column}),
       device_key()},
      fault_of});
  return table;
}

AttentionProblem attention_problem(const LineValues& values) {
  AttentionProblem p{.pass = values["pass"] == "bwd" ? Pass::backward : Pass::forward,
                     .batch = values.count("b"),
                     .heads_q = values.count("hq"),
                     .heads_kv = values.count("hkv"),
                     .len_q = values.count("lq"),
                     .len_k = values.count("lk"),
                     .dim_qk = values.count("d"),
                     .dim_v = values.count("dv"),
                     .dtype = *dtype_of(values["dtype"]),
                     .mask = mask_of(values),
                     .scale = values.number("scale")};
  p.result_dtype = p.dtype;
  p.device.kind = *device_kind_of(values["device"]);
  return p;
}

LineValues values_of(const AttentionProblem& p) {
  LineValues values(attention_keys());
  values.set("pass", p.pass == Pass::backward ? "bwd" : "fwd");
  for (const auto& [key, size] : {std::pair{"b", p.batch},
                                  {"hq", p.heads_q},
                                  {"hkv", p.heads_kv},
                                  {"lq", p.len_q},
                                  {"lk", p.len_k},
                                  {"d", p.dim_qk},
                                  {"dv", p.dim_v}})
    values.set(key, size);
  values.set("dtype", std::string(name_of(p.dtype)));
  values.set("mask", std::string(name_of(p.mask)));
  if (is_window(values)) {
    values.set("left", bound_text(p.mask.left));
    values.set("right", bound_text(p.mask.right));
  }
  values.set("layout", "bhld");
  values.set("scale", p.scale);
  values.set("device", std::string(name_of(p.device.kind)));
  return values;
}

std::string line_of(const AttentionProblem& problem) { return line_of(values_of(problem)); }

}  // namespace fovea::core
