// Rotary position embedding: pairs of columns of q and k are rotated by angles that grow with the position. A score
// then depends on the distance of its two tokens, not on where they are.
//
// Pair i of n = columns / 2 at position p is rotated by p theta^(-i / n): (a, b) becomes (a cos - b sin, a sin + b
// cos). Sines and cosines are computed in double precision and rounded to fp32, in which pairs are rotated. An angle is
// off by at most p 2^-50 + 2^-46, which at the largest position is half as much as the rounding of the sine. An element
// of a rotated pair of length r is off by at most 3 r 2^-24, and is then rounded to its type.
//
// Source: Su et al., "RoFormer", arXiv 2104.09864, 3.2.2 (interleaved pairs); halves are the order of GPT-NeoX and
// Llama.
#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/export.h"

namespace fovea {

// Which columns form pair i of n: 2 i and 2 i + 1 (interleaved), or i and i + n (halves).
enum class RotaryPairs : std::uint8_t { interleaved, halves };

// One of: interleaved, halves.
FOVEA_API std::string_view to_string(RotaryPairs pairs);

struct Rotary {
  static constexpr std::int64_t kMaxPosition = std::int64_t{1} << 24;

  double theta = 10000.0;  // 1 or more
  RotaryPairs pairs = RotaryPairs::interleaved;
  std::int64_t columns = 0;  // rotated columns of each head, from its first on; even; 0: all of them
  // Positions of the first row of q and of the first row of k; each next row is one further. All are 0 to kMaxPosition.
  std::int64_t position_q = 0, position_k = 0;
  bool operator==(const Rotary&) const = default;
};

}  // namespace fovea
