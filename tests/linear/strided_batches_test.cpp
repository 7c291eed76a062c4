// Batches cover every product once and in the order of a group's members.
#include "linear/strided_batches.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

namespace fovea::linear {
namespace {

using Product = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // elements of a, b, c

// What the calls do, as a list per element of c, in their order; `adds` must be false for the first of each only.
std::map<std::int64_t, std::vector<Product>> products_of(const std::vector<StridedBatch>& calls) {
  std::map<std::int64_t, std::vector<Product>> result;
  for (const StridedBatch& call : calls) {
    for (std::int64_t i = 0; i < call.count; ++i) {
      auto& list = result[call.c + i * call.c_batch_stride];
      EXPECT_EQ(call.adds, !list.empty());
      list.emplace_back(call.a + i * call.a_batch_stride, call.b + i * call.b_batch_stride,
                        call.c + i * call.c_batch_stride);
    }
  }
  return result;
}

void expect_all(const std::array<std::int64_t, 3>& counts, const Spread& a, const Spread& b, const Spread& c) {
  std::map<std::int64_t, std::vector<Product>> wanted;
  for (std::int64_t i = 0; i < counts[0]; ++i) {
    for (std::int64_t j = 0; j < counts[1]; ++j) {
      for (std::int64_t k = 0; k < counts[2]; ++k) {
        const auto at = [&](const Spread& s) { return i * s[0] + j * s[1] + k * s[2]; };
        wanted[at(c)].emplace_back(at(a), at(b), at(c));
      }
    }
  }
  EXPECT_EQ(products_of(strided_batches(counts, a, b, c)), wanted);
}

TEST(StridedBatches, DenseHeadsAreOneCall) {
  const Spread q{4 * 100, 100, 0}, k{4 * 70, 70, 0}, scores{4 * 7000, 7000, 0};
  const auto calls = strided_batches({3, 4, 1}, q, k, scores);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0], (StridedBatch{0, 0, 0, 12, 100, 70, 7000, false}));
  expect_all({3, 4, 1}, q, k, scores);
}

TEST(StridedBatches, HeadsInsideRowsTakeACallForEachOfTheShorterAxis) {
  const Spread q{4 * 100, 10, 0}, k{4 * 70, 7, 0}, scores{4 * 7000, 7000, 0};  // as layout=blhd
  EXPECT_EQ(strided_batches({3, 4, 1}, q, k, scores).size(), 3u);
  EXPECT_EQ(strided_batches({30, 4, 1}, q, k, scores).size(), 4u);
  expect_all({3, 4, 1}, q, k, scores);
  expect_all({5, 2, 1}, q, k, scores);
}

TEST(StridedBatches, MembersOfAGroupReadOneKeyHead) {
  const Spread q{4 * 3 * 10, 3 * 10, 10}, k{4 * 7, 7, 0}, scores{4 * 3 * 90, 3 * 90, 90};
  EXPECT_EQ(strided_batches({2, 4, 3}, q, k, scores).size(), 3u);
  expect_all({2, 4, 3}, q, k, scores);
}

TEST(StridedBatches, MembersOfAGroupAreAddedInOrder) {
  const Spread p{4 * 3 * 90, 3 * 90, 90}, q{4 * 3 * 10, 3 * 10, 10}, dk{4 * 7, 7, 0};
  const auto calls = strided_batches({2, 4, 3}, p, q, dk);
  EXPECT_EQ(calls.size(), 3u);
  expect_all({2, 4, 3}, p, q, dk);
  expect_all({1, 1, 5}, p, q, dk);
}

TEST(StridedBatches, BroadcastInputsRepeat) {
  expect_all({3, 4, 1}, {0, 0, 0}, {70, 0, 0}, {4 * 90, 90, 0});
  expect_all({3, 4, 2}, {0, 10, 5}, {0, 0, 0}, {8 * 90, 2 * 90, 90});
}

TEST(StridedBatches, ManyProductsAreSeveralCalls) {
  const auto calls = strided_batches({70000, 2, 1}, {20, 10, 0}, {0, 0, 0}, {2 * 90, 90, 0});
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[2].count, 140000 - 2 * 65535);
  EXPECT_EQ(calls[2].c, std::int64_t{2} * 65535 * 90);
}

}  // namespace
}  // namespace fovea::linear
