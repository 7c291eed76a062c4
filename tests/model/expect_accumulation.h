// Gradients of one batch, and those of its halves added up. The first half finds no numbers in its gradients.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/model.h"
#include "small_models.h"

namespace fovea::model {

inline void fill_gradients(Model& model, float value) {
  for (const Parameter& one : model.map().all())
    std::ranges::fill_n(model.gradients().begin() + one.offset, one.count(), value);
}

inline void expect_accumulation_equals_one_batch(const Config& config) {
  const std::vector<std::int32_t> tokens = tokens_of(config, 128, 1), targets = tokens_of(config, 128, 2);
  Model whole(config, {4, 32}, 3), half(config, {2, 32}, 3);
  const double loss = whole.forward_backward({tokens, targets}, 1.0, on(2));
  fill_gradients(half, std::numeric_limits<float>::quiet_NaN());
  double sum = 0;
  for (const std::size_t first : {0, 64}) {
    const std::span<const std::int32_t> some(tokens), following(targets);
    sum += half.forward_backward({some.subspan(first, 64), following.subspan(first, 64)}, 0.5, on(2), first > 0) / 2;
  }
  EXPECT_NEAR(sum, loss, 1e-6);
  double largest = 0;
  for (const float one : whole.gradients()) largest = std::max(largest, std::abs(static_cast<double>(one)));
  for (std::size_t i = 0; i < whole.gradients().size(); ++i)
    ASSERT_NEAR(half.gradients()[i], whole.gradients()[i], 1e-5 * largest) << i;
}

}  // namespace fovea::model
