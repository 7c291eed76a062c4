// Memory that is freed costs no new pages, until it is given back.
#include "program/machine/freed_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <vector>

namespace fovea::program {
namespace {

// Page faults while 64 MiB are allocated, written and freed.
long faults_of_use() {
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const long before = faults();
  const std::vector<char> memory(64 << 20, 1);
  return faults() - before;
}

TEST(FreedMemory, IsUsedAgainUntilItIsGivenBack) {
  keep_freed_memory();
  const long first = faults_of_use();
  EXPECT_GT(first, 0);
  EXPECT_LT(faults_of_use(), first / 4);
  give_freed_memory_back();
  EXPECT_GT(faults_of_use(), first / 2);
}

}  // namespace
}  // namespace fovea::program
