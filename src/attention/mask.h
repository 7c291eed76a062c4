// The words of masks, in one table, and why a mask is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fovea/mask.h"

namespace fovea::core {

struct MaskWord {
  std::string_view word;   // of the problem line
  Mask mask;               // for a window: its alignment, both bounds unlimited
  bool is_window = false;  // takes left and right
};

inline constexpr std::size_t kMaskWords = 7;

// In the order of the C interface's FOVEA_MASK constants.
std::span<const MaskWord> mask_words();
std::string mask_word_list();    // "none, causal, .."
std::string window_word_list();  // "window, .."
const MaskWord* find_mask_word(std::string_view word);

// The word that names a mask, and its index in the table. An invalid mask has the word of its alignment.
const MaskWord& word_of(const Mask& mask);
std::size_t index_of(const Mask& mask);
inline std::string_view name_of(const Mask& mask) { return word_of(mask).word; }

// The word, and the bounds if it is a window: "window left=1023 right=0".
std::string text_of(const Mask& mask);

// A bound in the problem line: a number, or `unlimited`.
inline constexpr std::string_view kUnlimitedWord = "unlimited";
std::string bound_text(std::int64_t bound);
constexpr bool is_bound(std::int64_t bound) {
  return bound == Mask::kUnlimited || (bound >= 0 && bound <= Mask::kLargestBound);
}

// Whether a problem line can express the mask: a known alignment, and bounds that are valid for it.
bool has_words(const Mask& mask);

// Why a mask is refused for these lengths.
struct MaskFault {
  std::string_view argument;  // mask, mask.left or mask.right
  std::string problem, got, wanted, hint;
};
// The words for the two lengths in a message.
struct LengthNames {
  std::string_view len_q, between, len_k;  // "lq=" 2 " lk=" 3
  std::string_view equal;                  // "lq == lk"
};
inline constexpr LengthNames kLineLengths{"lq=", " ", "lk=", "lq == lk"};
inline constexpr LengthNames kArgumentLengths{"len_q ", ", ", "len_k ", "len_q == len_k"};
std::optional<MaskFault> fault_of(const Mask& mask, std::int64_t len_q, std::int64_t len_k, const LengthNames& names);

}  // namespace fovea::core
