// Wraps the common families.
#include "verification/layers/families.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "verification/operation.h"

namespace fovea::verification {
namespace {

// Outliers of x stay below the size at which a rounding of q would decide which key wins the softmax.
constexpr int kOutlierExponent = -3;

// The power of two by which the family's values are multiplied: integers stay exact in sums.
int exponent_of(const Source& source, std::string_view family) {
  const bool is_outlier = family == "outliers";
  if (source.tensor.role != Role::parameter) return is_outlier ? kOutlierExponent : 0;
  const auto columns = static_cast<double>(source.tensor.sizes[3]);
  // Scores of normalised rows grow with the square of these.
  if (source.tensor.name.ends_with("_norm")) return is_outlier ? 2 * kOutlierExponent : 0;
  const bool is_bias = source.tensor.sizes[2] == 1 && source.tensor.name.ends_with("_bias");
  return (is_bias ? -2 : -static_cast<int>(std::lround(std::log2(columns) / 2))) + (is_outlier ? kOutlierExponent : 0);
}

// The tensor whose element is struck: the sequence that keys come from, or dy.
bool is_struck(const Source& source) {
  const std::string_view keys_from =
      source.c.values.table().find("cross") != nullptr && source.c["cross"] == "yes" ? "x_kv" : "x";
  return source.tensor.name == (source.c.backwards() && source.choice(5) % 2 == 1 ? "dy" : keys_from);
}

// A NaN; in dy it may be an infinity. An infinite key could hide its token, or not, by the signs of its products.
ValueAt nonfinite_values(const Source& source, const Family& normal) {
  const auto pick = [&source](std::uint64_t n, std::int64_t size) {
    return size == 0 ? 0 : static_cast<std::int64_t>(source.choice(n)) % size;
  };
  const Sizes& sizes = source.tensor.sizes;
  const std::int64_t b = pick(1, sizes[0]), i = pick(3, sizes[2]), c = pick(4, sizes[3]);
  const float value = source.tensor.name == "dy" && source.choice(0) % 2 == 0 ? std::numeric_limits<float>::infinity()
                                                                              : std::numeric_limits<float>::quiet_NaN();
  return [usual = normal.values(source), struck = is_struck(source), b, i, c, value](const Position& at) {
    return struck && at.b == b && at.i == i && at.c == c ? value : usual(at);
  };
}

}  // namespace

std::vector<Family> layer_families() {
  std::vector<Family> families;
  const std::vector<Family> all = common_families();
  const Family& normal = *std::ranges::find(all, "normal", &Family::name);
  for (const Family& common : all) {
    families.push_back(
        {common.name, [common, normal](const Source& source) -> ValueAt {
           const int exponent = exponent_of(source, common.name);
           ValueAt values = common.name == "nonfinite" ? nonfinite_values(source, normal) : common.values(source);
           return [value = std::move(values), exponent](const Position& at) { return std::ldexp(value(at), exponent); };
         }});
  }
  return families;
}

}  // namespace fovea::verification
