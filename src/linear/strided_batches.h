// Products over (batch, key head, query head of its group), as few library calls, each of which takes batches of one
// stride.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace fovea::linear {

// Elements from one batch, key head and member of its group to the next; 0 where a tensor is the same for all.
using Spread = std::array<std::int64_t, 3>;

// A library call: `count` products from these elements on, `*_batch_stride` elements from one to the next. `adds`: to
// what an earlier call wrote.
struct StridedBatch {
  std::int64_t a, b, c;
  std::int64_t count;
  std::int64_t a_batch_stride, b_batch_stride, c_batch_stride;
  bool adds;
  bool operator==(const StridedBatch&) const = default;
};

// The calls that compute c += a b once for every index of the three axes. If c has stride 0 along an axis, each index
// of that axis is a call of its own; these calls add to c in order, except the first, which overwrites. Neighbouring
// axes fold into one if every tensor crosses both at one stride. The longest axis that is left is the batch of the
// calls.
std::vector<StridedBatch> strided_batches(const std::array<std::int64_t, 3>& counts, const Spread& a, const Spread& b,
                                          const Spread& c);

}  // namespace fovea::linear
