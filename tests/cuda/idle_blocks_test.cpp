// What a stream left is its own: nothing of another, nothing twice, and no more than may be kept.
#include "cuda/runtime/idle_blocks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

namespace fovea::cuda {
namespace {

char memory[4 * IdleBlocks::kMostBlocks];  // addresses only

TEST(IdleBlocks, AreReusedOnlyOnTheirStream) {
  IdleBlocks idle;
  EXPECT_EQ(idle.take(1).data, nullptr);
  EXPECT_TRUE(idle.keep({1, memory, 100}));
  EXPECT_TRUE(idle.keep({2, memory + 1, 200}));
  EXPECT_EQ(idle.take(3).data, nullptr);
  const IdleBlock one = idle.take(1);
  EXPECT_EQ(one.data, memory);
  EXPECT_EQ(one.bytes, 100);
  EXPECT_EQ(idle.take(1).data, nullptr) << "a block may be taken once";
  EXPECT_EQ(idle.take(2).data, memory + 1);
}

TEST(IdleBlocks, TheLastKeptIsReusedFirst) {
  IdleBlocks idle;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(idle.keep({7, memory + i, 100 + i}));
  for (int i = 2; i >= 0; --i) EXPECT_EQ(idle.take(7).data, memory + i);
  EXPECT_EQ(idle.take(7).data, nullptr);
}

TEST(IdleBlocks, TheirNumberIsLimited) {
  IdleBlocks idle;
  for (std::size_t i = 0; i < IdleBlocks::kMostBlocks; ++i) EXPECT_TRUE(idle.keep({i, memory + i, 1}));
  EXPECT_FALSE(idle.keep({1000, memory, 1}));
  EXPECT_EQ(idle.take(5).data, memory + 5);
  EXPECT_TRUE(idle.keep({1000, memory, 1})) << "what was taken makes room";
}

TEST(IdleBlocks, TheirBytesAreLimited) {
  IdleBlocks idle;
  EXPECT_FALSE(idle.keep({1, memory, IdleBlocks::kMostBytes + 1}));
  EXPECT_EQ(idle.take(1).data, nullptr);
  EXPECT_TRUE(idle.keep({1, memory, IdleBlocks::kMostBytes - 10}));
  EXPECT_FALSE(idle.keep({2, memory, 11}));
  EXPECT_TRUE(idle.keep({2, memory, 10}));
  EXPECT_EQ(idle.take(1).bytes, IdleBlocks::kMostBytes - 10);
  EXPECT_TRUE(idle.keep({3, memory, IdleBlocks::kMostBytes - 10})) << "what was taken makes room";
}

TEST(IdleBlocks, AllAreReleasedAtOnce) {
  IdleBlocks idle;
  EXPECT_TRUE(idle.take_all().empty());
  EXPECT_TRUE(idle.keep({1, memory, IdleBlocks::kMostBytes}));
  EXPECT_EQ(idle.take_all().size(), 1u);
  EXPECT_EQ(idle.take(1).data, nullptr);
  EXPECT_TRUE(idle.keep({2, memory, IdleBlocks::kMostBytes}));
}

TEST(IdleBlocks, NoBlockIsGivenToTwoThreads) {
  IdleBlocks idle;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(idle.keep({1, memory + i, 1}));
  std::set<void*> held;
  std::mutex mutex;
  std::atomic<int> twice = 0, taken = 0;
  const auto work = [&] {
    for (int round = 0; round < 10000; ++round) {
      const IdleBlock block = idle.take(1);
      if (block.data == nullptr) continue;
      ++taken;
      {
        const std::lock_guard lock(mutex);
        twice += !held.insert(block.data).second;
      }
      {
        const std::lock_guard lock(mutex);
        held.erase(block.data);
      }
      idle.keep(block);
    }
  };
  std::thread other(work), another(work);
  work();
  other.join(), another.join();
  EXPECT_EQ(twice, 0);
  EXPECT_EQ(taken, 30000) << "four blocks among three threads: there is always one";
  EXPECT_EQ(idle.take_all().size(), 4u);
}

}  // namespace
}  // namespace fovea::cuda
