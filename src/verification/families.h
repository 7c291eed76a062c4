// Input families: functions that give the values of a case's tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "fovea/tensor.h"

namespace fovea::verification {

struct Case;
struct TensorSpec;

struct Position {
  std::int64_t b, h, i, c;
};

// A tensor to fill.
struct Source {
  const Case& c;
  const TensorSpec& tensor;
  std::uint64_t seed, stream;  // each tensor of a case has another stream

  core::RandomBlock block(const Position& at) const;
  float normal(const Position& at) const;
  std::uint32_t choice(std::uint64_t n) const;  // the case's n-th random number, the same for every tensor
};

using ValueAt = std::function<float(const Position&)>;

struct Family {
  std::string_view name;
  std::function<ValueAt(const Source&)> values;  // the source must outlive the result
};

// normal, integers, outliers, denormal, ones and nonfinite: families that fill each tensor independently.
std::vector<Family> common_families();

// Fills a tensor of any strides with the case's values. A dimension of stride 0 gets the values of index 0.
void fill(const Case& c, const TensorSpec& tensor, const MutableTensorView& view);

}  // namespace fovea::verification
