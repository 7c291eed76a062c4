// The comparer against itself: everything that must fail does, what is right passes.
#include "verification/comparer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fovea::verification {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::int64_t kRows = 6, kColumns = 8;

RowValues some_values() {
  RowValues values{{}, kColumns, {}};
  for (std::int64_t i = 0; i < kRows; ++i) values.rows.push_back({0, i / 3, i % 3});
  for (std::int64_t n = 0; n < kRows * kColumns; ++n) values.values.push_back(std::sin(static_cast<double>(n + 1)));
  return values;
}

Bound some_bound() {
  return {.factor = 2, .plain = {.rel_l2 = 1e-7, .max_abs = 1e-7, .row_norm = 3e-7, .row_relative = 2e-7}};
}

TensorError judge(const RowValues& got, const RowValues& reference, const Bound& bound = some_bound()) {
  return compare("out", got, reference, bound);
}

TEST(Comparer, AcceptsTheReferenceAndItsRounding) {
  const RowValues reference = some_values();
  EXPECT_TRUE(judge(reference, reference).ok);
  RowValues rounded = reference;
  for (double& value : rounded.values) value = static_cast<float>(value);
  EXPECT_TRUE(judge(rounded, reference).ok) << judge(rounded, reference).detail;
}

TEST(Comparer, FailsOnNanOnEitherSide) {
  const RowValues reference = some_values();
  RowValues poisoned = reference;
  poisoned.values[20] = kNan;
  EXPECT_FALSE(judge(poisoned, reference).ok);
  EXPECT_FALSE(judge(reference, poisoned).ok);
  EXPECT_TRUE(judge(poisoned, poisoned).ok);
  EXPECT_NE(judge(poisoned, reference).detail.find("[0, 0, 2, 4]"), std::string::npos)
      << judge(poisoned, reference).detail;
}

TEST(Comparer, FailsOnAllNan) {
  RowValues all = some_values();
  for (double& value : all.values) value = kNan;
  EXPECT_FALSE(judge(all, some_values()).ok);
  EXPECT_FALSE(judge(some_values(), all).ok);
}

TEST(Comparer, FailsOnInfinityAndItsSign) {
  const RowValues reference = some_values();
  RowValues infinite = reference, negative = reference, nan = reference;
  infinite.values[3] = kInfinity;
  negative.values[3] = -kInfinity;
  nan.values[3] = kNan;
  EXPECT_FALSE(judge(infinite, reference).ok);
  EXPECT_FALSE(judge(reference, infinite).ok);
  EXPECT_FALSE(judge(negative, infinite).ok);
  EXPECT_FALSE(judge(nan, infinite).ok);
  EXPECT_TRUE(judge(infinite, infinite).ok);
}

TEST(Comparer, NonFiniteValuesMatchEachOtherOnlyForNonFiniteInputs) {
  RowValues nan = some_values(), infinite = some_values();
  nan.values[3] = kNan;
  infinite.values[3] = kInfinity;
  Bound bound = some_bound();
  bound.poisoned = true;
  EXPECT_TRUE(judge(nan, infinite, bound).ok);
  EXPECT_FALSE(judge(some_values(), infinite, bound).ok);
  EXPECT_FALSE(judge(nan, some_values(), bound).ok);
  bound.may_poison.assign(kRows, false);
  bound.may_poison[0] = true;
  EXPECT_TRUE(judge(nan, some_values(), bound).ok);
  RowValues wrong = nan;
  wrong.values[1] += 0.1;  // a row that may be poisoned must still be right where it is not
  EXPECT_FALSE(judge(wrong, some_values(), bound).ok);
}

TEST(Comparer, FailsOnWrongSign) {
  RowValues negated = some_values();
  for (double& value : negated.values) value = -value;
  EXPECT_FALSE(judge(negated, some_values()).ok);
}

TEST(Comparer, FailsOnAUniformFactor) {
  RowValues scaled = some_values();
  for (double& value : scaled.values) value *= 1.00001;
  EXPECT_FALSE(judge(scaled, some_values()).ok);
}

TEST(Comparer, FailsOnOneBadRow) {
  RowValues one = some_values();
  for (std::int64_t c = 0; c < kColumns; ++c) one.values[static_cast<std::size_t>(4 * kColumns + c)] = 0;
  const TensorError error = judge(one, some_values());
  EXPECT_FALSE(error.ok);
  EXPECT_NE(error.detail.find("[0, 1, 1, "), std::string::npos) << error.detail;
}

TEST(Comparer, FailsOnOneWrongElementInAMillion) {
  RowValues reference{{}, 64, {}};
  for (std::int64_t i = 0; i < 16384; ++i) reference.rows.push_back({0, 0, i});
  reference.values.assign(16384 * 64, 1.0);
  RowValues wrong = reference;
  wrong.values[777777] += 1e-4;
  EXPECT_LT(judge(wrong, reference).rel_l2, 2e-7);  // the tensor's error alone would let it pass
  EXPECT_FALSE(judge(wrong, reference).ok);
}

// Several threads compare so many elements.
TEST(Comparer, NamesTheFirstWrongElementOfFourMillion) {
  constexpr std::int64_t kMany = 4096, kWide = 1024;
  RowValues reference{{}, kWide, std::vector<double>(kMany * kWide, 1.0)};
  for (std::int64_t row = 0; row < kMany; ++row) reference.rows.push_back({0, 0, row});
  RowValues wrong = reference;
  wrong.values[3000 * kWide + 5] = wrong.values[2000 * kWide + 7] = kNan;
  EXPECT_NE(judge(wrong, reference).detail.find("[0, 0, 2000, 7]"), std::string::npos);
  wrong = reference;
  wrong.values[4000 * kWide + 9] = 2;
  EXPECT_NE(judge(wrong, reference).detail.find("[0, 0, 4000, 9]"), std::string::npos);
  EXPECT_EQ(error_of(wrong, reference).max_abs, 1);
  EXPECT_TRUE(judge(reference, reference).ok);
}

TEST(Comparer, FailsOnASmallRowWithEveryElementWrong) {
  RowValues reference = some_values();
  for (std::int64_t c = 0; c < kColumns; ++c) reference.values[static_cast<std::size_t>(2 * kColumns + c)] *= 1e-3;
  RowValues wrong = reference;
  for (std::int64_t c = 0; c < kColumns; ++c) wrong.values[static_cast<std::size_t>(2 * kColumns + c)] *= -1;
  EXPECT_FALSE(judge(wrong, reference).ok);
}

TEST(Comparer, FailsOnAnotherShape) {
  const RowValues reference = some_values();
  RowValues shorter = reference, narrower = reference, elsewhere = reference;
  shorter.rows.pop_back();
  shorter.values.resize(shorter.values.size() - kColumns);
  narrower.columns = kColumns / 2;
  elsewhere.rows[0].head = 7;
  EXPECT_FALSE(judge(shorter, reference).ok);
  EXPECT_FALSE(judge(narrower, reference).ok);
  EXPECT_FALSE(judge(elsewhere, reference).ok);
}

TEST(Comparer, RowsWithoutPairsMustBeExact) {
  RowValues reference = some_values();
  for (std::int64_t c = 0; c < kColumns; ++c) reference.values[static_cast<std::size_t>(c)] = 0;
  Bound bound = some_bound();
  bound.exact.assign(kRows, false);
  bound.exact[0] = true;
  RowValues tiny = reference;
  tiny.values[5] = 1e-30;
  EXPECT_TRUE(judge(reference, reference, bound).ok);
  EXPECT_FALSE(judge(tiny, reference, bound).ok);
}

// Equal keys: dq is zero but for rounding, in the reference and in the plain evaluation alike.
TEST(Comparer, RowsThatMayBeNanStillCountInTheTensorsSize) {
  RowValues reference = some_values(), got = reference;
  Bound bound = some_bound();
  bound.may_poison.assign(kRows, true);
  bound.may_poison[kRows - 1] = false;
  const auto last = reference.values.size() - kColumns;
  for (std::size_t n = 0; n < reference.values.size(); ++n) {
    if (n >= last) reference.values[n] *= 1e-6;  // the only row that is judged is small beside the tensor
    got.values[n] = n < last ? kNan : reference.values[n] + 2e-8;
  }
  EXPECT_TRUE(judge(got, reference, bound).ok) << judge(got, reference, bound).detail;
  for (std::size_t n = last; n < got.values.size(); ++n) got.values[n] = reference.values[n] + 1e-6;
  EXPECT_FALSE(judge(got, reference, bound).ok);
}

TEST(Comparer, ATensorThatCancelsIsJudgedByTheRowsErrors) {
  RowValues reference = some_values();
  for (double& value : reference.values) value *= 1e-13;
  const Bound bound{.factor = 2, .plain = {.rel_l2 = 1e9, .max_abs = 1e-4, .row_norm = 2e-4, .row_relative = 1e9}};
  RowValues got = reference;
  for (double& value : got.values) value += 1e-4;
  EXPECT_TRUE(judge(got, reference, bound).ok) << judge(got, reference, bound).detail;
  for (std::size_t n = 0; n < kColumns; ++n) got.values[n] += 1e-3;
  EXPECT_FALSE(judge(got, reference, bound).ok);
}

TEST(Comparer, LseMayDifferByHalfItsOwnUlp) {
  const RowValues reference{{{0, 0, 0}, {0, 0, 1}, {0, 0, 2}}, 1, {1e4, 0.5, -kInfinity}};
  const Bound bound{.factor = 2};
  EXPECT_TRUE(compare_lse(reference, reference, bound).ok);
  RowValues near = reference, far = reference, finite = reference, positive = reference;
  near.values[0] += 0.45e-3;
  far.values[1] += 1e-6;
  finite.values[2] = -1e30;
  positive.values[2] = kInfinity;
  EXPECT_TRUE(compare_lse(near, reference, bound).ok);
  near.values[0] += 0.45e-3;
  EXPECT_FALSE(compare_lse(near, reference, bound).ok);
  EXPECT_FALSE(compare_lse(far, reference, bound).ok);
  EXPECT_FALSE(compare_lse(finite, reference, bound).ok);
  EXPECT_FALSE(compare_lse(positive, reference, bound).ok);
}

TEST(Comparer, HalfUlpDependsOnTheType) {
  EXPECT_EQ(half_ulp(DType::fp32, 1.0), 0x1p-24);
  EXPECT_EQ(half_ulp(DType::bf16, 1.5), 0x1p-8);
  EXPECT_EQ(half_ulp(DType::fp16, 0.75), 0x1p-12);
  EXPECT_EQ(half_ulp(DType::fp16, 1e-7), 0x1p-25);
  EXPECT_EQ(half_ulp(DType::fp32, 0.0), 0x1p-150);
}

}  // namespace
}  // namespace fovea::verification
