// The largest model that fits, as planned and as verified.
#include "program/profile/model_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/memory.h"

namespace fovea::tests {
namespace {

TEST(ModelMemory, FindsTheLargestBatchAndContext) {
  const model::Config config{.layers = 2, .width = 32, .heads = 2, .hidden = 48};
  const program::ProfiledModel model{"custom", config};
  program::ProfileSettings s{.batch = 2, .context = 16};
  for (const std::string dimension : {"batch", "context"}) {
    const auto planned = [&](std::int64_t size) {
      program::ProfileSettings other = s;
      (dimension == "batch" ? other.batch : other.context) = size;
      program::ProfiledModel longer = model;
      longer.config.context = std::max(config.context, other.context);
      return program::planned_row(longer, other).planned_bytes;
    };
    const std::int64_t room = planned(37) + 1;  // more than 37 and less than 38
    const std::optional<program::ProfileRow> row = program::largest_that_fits(model, s, dimension, room, 1e12);
    ASSERT_TRUE(row);
    EXPECT_EQ(dimension == "batch" ? row->batch : row->context, 37);
    EXPECT_EQ(row->largest, dimension);
    EXPECT_EQ(row->status, "ok") << row->reason;
    EXPECT_EQ(row->reason, "") << "a step ran";
    EXPECT_EQ(row->measured_bytes, row->planned_bytes);
    const auto slow = program::largest_that_fits(model, s, dimension, room, 1);
    EXPECT_NE(slow->reason.find("its memory was written"), std::string::npos) << "a step takes too long at 1 flop/s";
    EXPECT_EQ(slow->measured_bytes, slow->planned_bytes);
    EXPECT_FALSE(program::largest_that_fits(model, s, dimension, planned(1) - 1, 1e12)) << "no room for one";
    core::fail_allocation(1);
    const auto taken = program::largest_that_fits(model, s, dimension, room, 1e12);
    EXPECT_EQ(taken->status, "oom") << "others took the memory meanwhile";
    EXPECT_FALSE(taken->measured_bytes);
  }
}

TEST(ModelMemory, IsMeasuredWithoutAChangeOfWeights) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const model::Config config{.layers = 2, .width = 32, .heads = 2, .hidden = 48, .dtype = dtype};
    program::ProfileSettings s{.batch = 2, .context = 16};
    program::ProfileRow row = program::planned_row({"custom", config}, s);
    model::Model model(config, {2, 16}, 0);
    const std::vector<float> before = model.read(model::State::weights, {});
    const std::vector<std::int32_t> tokens = program::random_tokens(config, 32);
    program::MemoryMeter meter(DeviceKind::cpu);
    program::measure_memory(model, program::batch_of(tokens), meter, row);
    EXPECT_EQ(model.read(model::State::weights, {}), before);
    EXPECT_EQ(row.measured_bytes, row.planned_bytes);
  }
}

}  // namespace
}  // namespace fovea::tests
