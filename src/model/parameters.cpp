// The order of the weights is the order of the file: embedding, blocks, last norm, head.
#include "model/parameters.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"

namespace fovea::model {
namespace {

constexpr double kDeviation = 0.02;
constexpr std::int64_t kFloatsPerLine = 16;  // 64 bytes

}  // namespace

std::vector<std::int64_t> Parameter::shape() const {
  if (is_vector) return {columns};
  return {rows, columns};
}

std::int64_t ParameterMap::add(const Parameter& parameter) {
  all_.push_back(parameter);
  all_.back().offset = floats_;
  floats_ += parameter.count();
  return all_.back().offset;
}

std::int64_t ParameterMap::add_vector(const std::string& name, std::int64_t columns) {
  floats_ = (floats_ + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine;
  return add({.name = name + ".weight", .rows = 1, .columns = columns, .is_vector = true});
}

std::int64_t ParameterMap::add_matrix(const std::string& name, std::int64_t rows, std::int64_t columns,
                                      double deviation) {
  floats_ = (floats_ + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine;
  return add({.name = name + ".weight", .rows = rows, .columns = columns, .deviation = deviation});
}

ParameterMap::ParameterMap(const Config& c) {
  const double last = kDeviation / std::sqrt(2.0 * static_cast<double>(c.layers));
  embedding = add_matrix("embedding", c.vocabulary, c.width, kDeviation);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    BlockOffsets block;
    block.attention_norm = add_vector(prefix + "attention_norm", c.width);
    block.qkv = add_matrix(prefix + "attention.qkv", 3 * c.width, c.width, kDeviation);
    block.out = add_matrix(prefix + "attention.out", c.width, c.width, last);
    block.feed_forward_norm = add_vector(prefix + "feed_forward_norm", c.width);
    block.gate_up = add_matrix(prefix + "feed_forward.gate", c.hidden, c.width, kDeviation);
    add({.name = prefix + "feed_forward.up.weight", .rows = c.hidden, .columns = c.width, .deviation = kDeviation});
    block.down = add_matrix(prefix + "feed_forward.down", c.width, c.hidden, last);
    blocks.push_back(block);
  }
  norm = add_vector("norm", c.width);
  head = add_matrix("head", c.vocabulary, c.width, kDeviation);
}

std::int64_t ParameterMap::count() const {
  std::int64_t count = 0;
  for (const Parameter& one : all_) count += one.count();
  return count;
}

void initialize(const ParameterMap& map, std::uint64_t seed, std::span<float> weights) {
  std::ranges::fill(weights, 0.0f);
  for (std::size_t index = 0; index < map.all().size(); ++index) {
    const Parameter& one = map.all()[index];
    const auto deviation = static_cast<float>(one.deviation);
    for (std::int64_t i = 0; i < one.count(); ++i)
      weights[static_cast<std::size_t>(one.offset + i)] =
          one.is_vector
              ? 1.0f
              : deviation * core::approximate_normal(core::philox(seed, index, static_cast<std::uint64_t>(i)));
  }
}

}  // namespace fovea::model
