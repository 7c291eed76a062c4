// Wraps the common families.
#include "verification/layers/families.h"

#include <cmath>

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
  // Scores of normalised rows grow with the square of these. Rows of tiny numbers are divided by sqrt(epsilon) = 2^-10:
  // products that treat such numbers as 0 would have errors 2^10 times as large.
  if (source.tensor.name.ends_with("_norm")) return is_outlier ? 2 * kOutlierExponent : family == "denormal" ? -10 : 0;
  const bool is_bias = source.tensor.sizes[2] == 1 && source.tensor.name.ends_with("_bias");
  return (is_bias ? -2 : -static_cast<int>(std::lround(std::log2(columns) / 2))) + (is_outlier ? kOutlierExponent : 0);
}

}  // namespace

std::vector<Family> layer_families() {
  std::vector<Family> families;
  for (const Family& common : common_families()) {
    if (common.name == "nonfinite") continue;
    families.push_back({common.name, [common](const Source& source) -> ValueAt {
                          const int exponent = exponent_of(source, common.name);
                          return [value = common.values(source), exponent](const Position& at) {
                            return std::ldexp(value(at), exponent);
                          };
                        }});
  }
  return families;
}

}  // namespace fovea::verification
