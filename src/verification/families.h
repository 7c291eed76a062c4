// Input families: how the values of a tensor follow from its case.
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

// A tensor whose values are made.
struct Source {
  const Case& c;
  const TensorSpec& tensor;
  std::uint64_t seed, stream;  // the stream tells the tensor from the case's others

  core::RandomBlock block(const Position& at) const;
  float normal(const Position& at) const;
  std::uint32_t choice(std::uint64_t n) const;  // a random number of the whole case, the same for every tensor
};

using ValueAt = std::function<float(const Position&)>;

struct Family {
  std::string_view name;
  std::function<ValueAt(const Source&)> values;  // the source outlives what it returns
};

// normal, integers, outliers, denormal, ones and nonfinite: for operations whose inputs mean nothing to each other.
std::vector<Family> common_families();

// Fills a tensor of any strides with the values that the case gives it. Dimensions of stride 0 hold those of index 0.
void fill(const Case& c, const TensorSpec& tensor, const MutableTensorView& view);

}  // namespace fovea::verification
