// More is measured if an answer is beyond its bound, and only then.
#include "verification/expectation.h"

#include <gtest/gtest.h>

namespace fovea::verification {
namespace {

// One number that should be 1. The plain evaluation's error is 0.01 at first, then 0.1; the bound is twice that.
Expectation one(int& measured) {
  Bound bound{.factor = 2, .plain = {.rel_l2 = 0.01, .row_norm = 0.01, .row_relative = 0.01}};
  Expectation expected;
  expected.tensors.push_back({"y", {{{0, 0, 0}}, 1, {1.0}}, bound});
  expected.measure_more = [&measured](Expectation& again) {
    ++measured;
    again.tensors[0].bound.plain.raise_to({.rel_l2 = 0.1, .row_norm = 0.1, .row_relative = 0.1});
  };
  return expected;
}

bool passes(const Expectation& expected, float answer) {
  TensorSet results;
  results.add("y", contiguous(&answer, {1, 1, 1, 1}));
  return compare(expected, results).ok;
}

TEST(Expectation, MeasuresMoreOnlyAfterAFailure) {
  int measured = 0;
  const Expectation expected = one(measured);
  EXPECT_TRUE(passes(expected, 1.015f));
  EXPECT_EQ(measured, 0);
  EXPECT_TRUE(passes(expected, 1.15f));
  EXPECT_EQ(measured, 1);
  EXPECT_FALSE(passes(expected, 1.25f));
  EXPECT_EQ(measured, 2);
}

// The rest of what counts for every answer is measured first, and only if an answer needs it.
TEST(Expectation, MeasuresTheRestBeforeMore) {
  int rest = 0, more = 0;
  Expectation expected = one(more);
  expected.measure_rest = [&rest](Expectation& again) {
    ++rest;
    again.tensors[0].bound.plain.raise_to({.rel_l2 = 0.05, .row_norm = 0.05, .row_relative = 0.05});
  };
  EXPECT_TRUE(passes(expected, 1.015f));
  EXPECT_EQ(rest, 0);
  EXPECT_TRUE(passes(expected, 1.09f));
  EXPECT_EQ(rest, 1);
  EXPECT_EQ(more, 0);
  EXPECT_TRUE(passes(expected, 1.15f));
  EXPECT_EQ(rest, 2);
  EXPECT_EQ(more, 1);
  expected.include_rest();
  EXPECT_EQ(expected.tensors[0].bound.plain.rel_l2, 0.05);
  EXPECT_FALSE(passes(expected, 1.25f));
  EXPECT_EQ(rest, 3);
  EXPECT_EQ(more, 2);
}

// What was measured for one answer is not kept for the next, so that the order of the answers does not matter.
TEST(Expectation, KeepsItsBounds) {
  int measured = 0;
  const Expectation expected = one(measured);
  EXPECT_TRUE(passes(expected, 1.15f));
  EXPECT_EQ(expected.tensors[0].bound.plain.rel_l2, 0.01);
}

}  // namespace
}  // namespace fovea::verification
