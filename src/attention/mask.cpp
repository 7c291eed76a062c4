// The table of masks, and the refusals of invalid ones.
#include "attention/mask.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fovea::core {
namespace {

using enum Mask::Alignment;

constexpr Mask unbounded(Mask::Alignment alignment) { return {alignment, Mask::kUnlimited, Mask::kUnlimited}; }

constexpr MaskWord kWords[] = {{"none", Mask::none},
                               {"causal", Mask::causal},
                               {"causal_top_left", Mask::causal_top_left},
                               {"causal_bottom_right", Mask::causal_bottom_right},
                               {"window", unbounded(equal_lengths), true},
                               {"window_top_left", unbounded(top_left), true},
                               {"window_bottom_right", unbounded(bottom_right), true}};

static_assert(std::size(kWords) == kMaskWords);

constexpr std::string_view kAlignmentHint = "bottom_right lets the last query see every key";
constexpr std::string_view kWindowAlignmentHint = "bottom_right puts the last query at the last key";

std::string bounds_text(const Mask& mask) {
  return "left " + bound_text(mask.left) + ", right " + bound_text(mask.right);
}

std::string list(bool windows_only) {
  std::string text;
  for (const MaskWord& one : kWords) {
    if (one.is_window || !windows_only) text += (text.empty() ? "" : ", ") + std::string(one.word);
  }
  return text;
}

MaskFault unaligned(const Mask& mask, std::int64_t len_q, std::int64_t len_k, const LengthNames& names) {
  const std::string word(name_of(mask));
  return {.argument = "mask",
          .problem = "`" + word + "` does not say how unequal lengths are aligned",
          .got = std::string(names.len_q) + std::to_string(len_q) + std::string(names.between) +
                 std::string(names.len_k) + std::to_string(len_k),
          .wanted = std::string(names.equal) + ", or " + word + "_top_left or " + word + "_bottom_right",
          .hint = std::string(word_of(mask).is_window ? kWindowAlignmentHint : kAlignmentHint)};
}

}  // namespace

std::span<const MaskWord> mask_words() { return kWords; }

std::string mask_word_list() { return list(false); }
std::string window_word_list() { return list(true); }

const MaskWord* find_mask_word(std::string_view word) {
  const auto* const found = std::ranges::find(kWords, word, &MaskWord::word);
  return found != std::end(kWords) ? found : nullptr;
}

const MaskWord& word_of(const Mask& mask) {
  for (const MaskWord& one : kWords) {
    if (one.mask == mask && !one.is_window) return one;
  }
  for (const MaskWord& one : kWords) {
    if (one.is_window && one.mask.alignment == mask.alignment) return one;
  }
  return kWords[0];
}

std::size_t index_of(const Mask& mask) { return static_cast<std::size_t>(&word_of(mask) - kWords); }

std::string text_of(const Mask& mask) {
  const MaskWord& word = word_of(mask);
  if (!word.is_window) return std::string(word.word);
  return std::string(word.word) + " left=" + bound_text(mask.left) + " right=" + bound_text(mask.right);
}

std::string bound_text(std::int64_t bound) {
  return bound == Mask::kUnlimited ? std::string(kUnlimitedWord) : std::to_string(bound);
}

bool has_words(const Mask& mask) {
  const bool unlimited = mask.left == Mask::kUnlimited && mask.right == Mask::kUnlimited;
  return mask.alignment <= bottom_right && is_bound(mask.left) && is_bound(mask.right) &&
         unlimited == (mask.alignment == none);
}

std::optional<MaskFault> fault_of(const Mask& mask, std::int64_t len_q, std::int64_t len_k, const LengthNames& names) {
  if (has_words(mask) && (mask.alignment != equal_lengths || len_q == len_k)) return std::nullopt;
  if (mask.alignment > bottom_right)
    return MaskFault{"mask", "unknown mask", std::to_string(static_cast<int>(mask.alignment)), mask_word_list(),
                     "set mask to a value of struct Mask"};
  for (const auto& [argument, bound] : {std::pair{"mask.left", mask.left}, {"mask.right", mask.right}}) {
    if (!is_bound(bound))
      return MaskFault{argument, "a window's bound out of range", std::to_string(bound),
                       "0 to 2^62 keys, or Mask::kUnlimited", "left and right count keys beside the row's own"};
  }
  if (mask.alignment == none)
    return MaskFault{"mask", "a window without an alignment", bounds_text(mask), window_word_list(),
                     "an alignment says which key is a row's own"};
  if (mask.left == Mask::kUnlimited && mask.right == Mask::kUnlimited)
    return MaskFault{"mask", "a window that hides nothing", bounds_text(mask), "a limit for left or right, or none",
                     "the mask that hides nothing is called none"};
  return unaligned(mask, len_q, len_k, names);
}

}  // namespace fovea::core
