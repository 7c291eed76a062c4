// Small models of the tests on the CPU and on GPUs, their weights and their tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.h"
#include "core/random.h"
#include "model/parameters.h"

namespace fovea::model {

constexpr Config kTiny{.vocabulary = 11, .layers = 2, .width = 12, .heads = 3, .hidden = 10, .context = 8};
constexpr Config kSmall{.vocabulary = 70, .layers = 2, .width = 48, .heads = 4, .hidden = 80, .context = 32};

inline core::RunContext on(int threads) { return {.threads = threads}; }

inline std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

inline std::vector<std::int32_t> tokens_of(const Config& config, std::int64_t count, std::uint64_t seed) {
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(static_cast<std::int32_t>(core::philox(seed, 1, static_cast<std::uint64_t>(i))[0] %
                                            static_cast<std::uint32_t>(config.vocabulary)));
  return all;
}

// Larger weights than a training begins with, so that every part of the model matters.
inline std::vector<float> large_weights(const ParameterMap& map, std::uint64_t seed) {
  std::vector<float> weights(static_cast<std::size_t>(map.floats()));
  for (const Parameter& one : map.all()) {
    for (std::int64_t i = one.offset; i < one.offset + one.count(); ++i) {
      const float random = core::approximate_normal(core::philox(seed, 2, static_cast<std::uint64_t>(i)));
      weights[static_cast<std::size_t>(i)] = one.is_vector ? 1.0f + 0.2f * random : 0.4f * random;
    }
  }
  return weights;
}

}  // namespace fovea::model
