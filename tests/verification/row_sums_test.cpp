// Sums as tensor cores form them, and the plain evaluation's error with them.
#include "verification/row_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "verification/attention/case_tensors.h"
#include "verification/attention/evaluation.h"
#include "verification/attention/plain.h"

namespace fovea::verification {
namespace {

// The sum of products with 1 on simulated tensor cores.
float tensor_core_sum(const std::vector<float>& values) {
  const PlainVariant variant{.tensor_cores = true};
  RowSums sums(1, variant.rounding());
  for (const float& value : values) sums.add(1, &value);
  return sums.finish()[0];
}

constexpr float kLastPlace = 0x1p-23f;  // of 1

TEST(RowSums, OfTensorCoresAreRoundedTowardZeroAfterSixteenProducts) {
  std::vector<float> values(3 * 16, 0.0f);
  values[0] = 1;
  for (const int n : {16, 17, 18, 32, 33, 34}) values[static_cast<std::size_t>(n)] = kLastPlace / 2;
  EXPECT_EQ(tensor_core_sum(values), 1 + 2 * kLastPlace);  // each time 1.5 places are rounded down to one
  for (float& value : values) value = -value;
  EXPECT_EQ(tensor_core_sum(values), -1 - 2 * kLastPlace);
}

TEST(RowSums, OfTensorCoresCutProductsTwoBitsBehindTheLastPlaceOfTheLargest) {
  std::vector<float> values(16, kLastPlace * 7 / 16);
  values[3] = 1;
  EXPECT_EQ(tensor_core_sum(values), 1 + 3 * kLastPlace);  // 15 times a quarter of a place; exactly 6.6 places
  std::fill(values.begin(), values.end(), -kLastPlace * 3 / 16);
  values[15] = 1;
  EXPECT_EQ(tensor_core_sum(values), 1);
  values.assign(17, 1.5f);
  values[16] = 0x1p25f;  // the sum of the others is 24, and a unit 1
  EXPECT_EQ(tensor_core_sum(values), 0x1p25f + 24);
  values[16] = 0x1p26f;  // the unit is 2, a last place 8
  EXPECT_EQ(tensor_core_sum(values), 0x1p26f + 24);
  values[0] = 4.5f;  // 27, cut to 26
  EXPECT_EQ(tensor_core_sum(values), 0x1p26f + 24);
}

TEST(RowSums, OfTensorCoresKeepWhatIsNotFinite) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(tensor_core_sum({1, infinity, 2}), infinity);
  EXPECT_EQ(tensor_core_sum({1, -infinity, 0x1p120f}), -infinity);
  EXPECT_TRUE(std::isnan(tensor_core_sum({infinity, -infinity})));
  EXPECT_TRUE(std::isnan(tensor_core_sum({1, std::nanf("")})));
  EXPECT_EQ(tensor_core_sum({}), 0);
}

// The mean of 1025 values near 1 whose products are cut: a tensor core's sum is 6.6e-6 too small, as the GPU's was.
TEST(PlainForward, OnTensorCoresHasTheErrorOfCutProducts) {
  AttentionCase c = attention_case("lk=1025 d=1 dv=32 dtype=fp16 scale=0 data=sink seed=28678111");
  c.problem.result_dtype = DType::fp32;
  const CaseTensors tensors = make_tensors(c);
  const ForwardTensors inputs = tensors.forward();
  const Sample sample = sample_of(c.problem, 0);
  const RowValues reference = evaluate_reference(c.problem, inputs, sample).out;
  PlainVariant variant = plain_variant(0);
  const auto mean_error = [&] {
    const RowValues plain = evaluate_plain(c.problem, inputs, sample, variant).out;
    double sum = 0;
    for (std::size_t n = 0; n < plain.values.size(); ++n) sum += reference.values[n] - plain.values[n];
    return sum / static_cast<double>(plain.values.size());
  };
  EXPECT_LT(mean_error(), 2e-6);
  variant.tensor_cores = true;
  EXPECT_NEAR(mean_error(), 6.6e-6, 4e-7);
}

}  // namespace
}  // namespace fovea::verification
