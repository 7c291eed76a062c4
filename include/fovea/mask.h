// A mask is a value: the interval of keys that each query row may see.
#pragma once

#include <compare>
#include <cstdint>

namespace fovea {

// Query row i of [0, len_q) sees the keys j of [0, len_k) with i + offset - left <= j <= i + offset + right. The row's
// own key is i + offset; the alignment sets offset.
struct Mask {
  enum class Alignment : std::uint8_t {
    none,           // no mask: every key is seen
    equal_lengths,  // offset 0; refused if len_q != len_k, where either alignment below could be meant
    top_left,       // offset 0: row i's own key is key i
    bottom_right,   // offset len_k - len_q: the last row's own key is the last key
  };
  static constexpr std::int64_t kUnlimited = INT64_MAX;
  static constexpr std::int64_t kLargestBound = std::int64_t{1} << 62;

  Alignment alignment = Alignment::none;
  std::int64_t left = kUnlimited;   // keys before the row's own: 0 to kLargestBound, or kUnlimited
  std::int64_t right = kUnlimited;  // keys after the row's own

  static const Mask none;                 // every key
  static const Mask causal;               // left unlimited, right 0, for equal lengths
  static const Mask causal_top_left;      // the same, top left, for any lengths
  static const Mask causal_bottom_right;  // the same, bottom right, for any lengths

  // Sliding windows. At least one side must be limited: a window without bounds is `none`, and is refused.
  static constexpr Mask window(std::int64_t left, std::int64_t right) {
    return {Alignment::equal_lengths, left, right};
  }
  static constexpr Mask window_top_left(std::int64_t left, std::int64_t right) {
    return {Alignment::top_left, left, right};
  }
  static constexpr Mask window_bottom_right(std::int64_t left, std::int64_t right) {
    return {Alignment::bottom_right, left, right};
  }

  auto operator<=>(const Mask&) const = default;
};

inline constexpr Mask Mask::none{};
inline constexpr Mask Mask::causal = Mask::window(Mask::kUnlimited, 0);
inline constexpr Mask Mask::causal_top_left = Mask::window_top_left(Mask::kUnlimited, 0);
inline constexpr Mask Mask::causal_bottom_right = Mask::window_bottom_right(Mask::kUnlimited, 0);

}  // namespace fovea
