// Reads and writes masks in problem lines.
#include "attention/mask_keys.h"

#include <algorithm>
#include <cmath>

#include "attention/mask.h"

namespace fovea::core {
namespace {

bool is_window(const LineValues& values) { return find_mask_word(values["mask"])->is_window; }

std::string softmax_scale(const LineValues& values) {
  LineValues scaled = values;
  scaled.set("scale", 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(values.count("d"), 1))));
  return scaled["scale"];
}

std::int64_t bound_of(const LineValues& values, std::string_view key) {
  return values[key] == kUnlimitedWord ? Mask::kUnlimited : values.count(key);
}

std::vector<std::string_view> mask_names() {
  std::vector<std::string_view> names;
  for (const MaskWord& word : mask_words()) names.push_back(word.word);
  return names;
}

Key bound_key(std::string_view name, std::string_view help) {
  return {.name = name,
          .help = help,
          .words = {kUnlimitedWord},
          .fallback = std::string(kUnlimitedWord),
          .applies = is_window};
}

}  // namespace

std::vector<Key> mask_keys() {
  return {Key{"mask", KeyKind::word, "which keys a query sees; causal and window need lq = lk", mask_names(), "none"}
              .printed({.noun = "", .always = true})
              .instead_of({"causal"}),
          bound_key("left", "of a window: keys that a row sees before its own"),
          bound_key("right", "of a window: keys that a row sees after its own")};
}

Key scale_key() {
  return Key{"scale", KeyKind::number, "multiplies the scores", {}, "1/sqrt(d)", softmax_scale}.printed(
      {.place = KeyPlace::column});
}

Mask mask_of(const LineValues& values) {
  const MaskWord& word = *find_mask_word(values["mask"]);
  if (!word.is_window) return word.mask;
  return {word.mask.alignment, bound_of(values, "left"), bound_of(values, "right")};
}

void set_mask(LineValues& values, const Mask& mask) {
  values.set("mask", std::string(name_of(mask)));
  if (!is_window(values)) return;
  values.set("left", bound_text(mask.left));
  values.set("right", bound_text(mask.right));
}

std::optional<LineFault> mask_fault_of(const LineValues& values, std::int64_t len_q, std::int64_t len_k) {
  for (const std::string_view key : {"left", "right"}) {
    const bool fits = !is_window(values) || values[key] == kUnlimitedWord || values.count(key) <= Mask::kLargestBound;
    if (!fits)
      return LineFault{{key},
                       "a window's bound out of range",
                       values[key],
                       "0 to 2^62 keys, or unlimited",
                       "left and right count keys beside the row's own"};
  }
  const Mask mask = mask_of(values);
  if (auto fault = fault_of(mask, len_q, len_k, kLineLengths))
    return LineFault{{"mask"}, fault->problem, fault->got, fault->wanted, fault->hint};
  if (is_window(values) && !word_of(mask).is_window)
    return LineFault{{"mask"},
                     "a window that has a name",
                     "left=" + values["left"] + " right=" + values["right"],
                     "mask=" + std::string(name_of(mask)),
                     "unlimited to the left with right=0 is causal"};
  return std::nullopt;
}

}  // namespace fovea::core
