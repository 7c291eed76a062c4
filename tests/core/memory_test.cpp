// The cache of workspaces.
#include "core/memory.h"

#include <gtest/gtest.h>

#include <thread>

namespace fovea::core {
namespace {

TEST(Workspaces, AThreadGetsTheBlockBackThatItUsedLast) {
  release_cached_memory();
  constexpr std::int64_t kBytes = 12345;
  void* elsewhere = nullptr;
  void* here = nullptr;
  {
    const WorkspaceLease lease(kBytes, "test");
    here = lease.data();
    std::thread([&] { elsewhere = WorkspaceLease(kBytes, "test").data(); }).join();
  }
  ASSERT_NE(here, elsewhere);
  for (int repeats = 0; repeats < 3; ++repeats) EXPECT_EQ(WorkspaceLease(kBytes, "test").data(), here);
  release_cached_memory();
}

TEST(Workspaces, NoBytesAreNoBlock) {
  const WorkspaceLease kept(64, "test");  // so that the cache has something to give
  EXPECT_EQ(WorkspaceLease(0, "test").data(), nullptr);
}

}  // namespace
}  // namespace fovea::core
