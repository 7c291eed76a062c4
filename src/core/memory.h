// Host memory of calls. All of it is allocated here, so that tests can count it and make it fail.
#pragma once

#include <cstdint>
#include <string_view>

namespace fovea::core {

// Workspace for one call, from a cache that the library keeps; 64-byte aligned, not zeroed. Throws Error(out_of_memory)
// with the bytes wanted.
class WorkspaceLease {
 public:
  WorkspaceLease(std::int64_t bytes, std::string_view call);
  ~WorkspaceLease();
  WorkspaceLease(const WorkspaceLease&) = delete;
  WorkspaceLease& operator=(const WorkspaceLease&) = delete;

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

struct MemoryCount {
  std::int64_t current;  // bytes leased now
  std::int64_t peak;     // most bytes leased at once since reset_memory_peak()
};
MemoryCount memory_count();
void reset_memory_peak();

// Frees the cached blocks.
void release_cached_memory();

// For tests: the n-th allocation from now (1: the next) fails as if memory were exhausted; 0 cancels that.
void fail_allocation(std::int64_t n);

}  // namespace fovea::core
