// Merging axes, choosing the batch among them, and one call for each index of the others.
#include "linear/strided_batches.h"

#include <algorithm>

namespace fovea::linear {
namespace {

constexpr std::int64_t kMostInCall = 65535;  // the third dimension of a grid

struct Axis {
  std::int64_t count, a, b, c;
};

std::vector<Axis> merged_axes(const std::array<std::int64_t, 3>& counts, const Spread& a, const Spread& b,
                              const Spread& c) {
  std::vector<Axis> axes;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 1) continue;
    const Axis inner{counts[i], a[i], b[i], c[i]};
    Axis* const outer = axes.empty() ? nullptr : &axes.back();
    const bool adds = inner.c == 0;  // products that are added belong to no batch
    if (outer != nullptr && !adds && outer->a == inner.count * inner.a && outer->b == inner.count * inner.b &&
        outer->c == inner.count * inner.c) {
      *outer = {outer->count * inner.count, inner.a, inner.b, inner.c};
    } else {
      axes.push_back(inner);
    }
  }
  return axes;
}

}  // namespace

std::vector<StridedBatch> strided_batches(const std::array<std::int64_t, 3>& counts, const Spread& a, const Spread& b,
                                          const Spread& c) {
  std::vector<Axis> axes = merged_axes(counts, a, b, c);
  Axis batch{1, 0, 0, 0};
  const auto longest = std::max_element(axes.begin(), axes.end(), [](const Axis& one, const Axis& other) {
    return (one.c == 0 ? 0 : one.count) < (other.c == 0 ? 0 : other.count);
  });
  if (longest != axes.end() && longest->c != 0) {
    batch = *longest;
    axes.erase(longest);
  }
  std::int64_t calls = 1;
  for (const Axis& axis : axes) calls *= axis.count;
  std::vector<StridedBatch> result;
  for (std::int64_t call = 0; call < calls; ++call) {
    StridedBatch one{0, 0, 0, 0, batch.a, batch.b, batch.c, false};
    std::int64_t rest = call;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      const std::int64_t index = rest % axis->count;
      rest /= axis->count;
      one.a += index * axis->a;
      one.b += index * axis->b;
      one.c += index * axis->c;
      one.adds = one.adds || (axis->c == 0 && index > 0);
    }
    for (std::int64_t first = 0; first < batch.count; first += kMostInCall) {
      StridedBatch part = one;
      part.a += first * batch.a;
      part.b += first * batch.b;
      part.c += first * batch.c;
      part.count = std::min(kMostInCall, batch.count - first);
      result.push_back(part);
    }
  }
  return result;
}

}  // namespace fovea::linear
