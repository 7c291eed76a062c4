// All memory that the library allocates goes through here, so that it can be counted and made to fail in tests.
#pragma once

#include <cstdint>
#include <string_view>

namespace fovea::core {

// Workspace for one call: the caller's if it is large enough, else from a cache that the library keeps.
// Throws Error(out_of_memory) with the bytes wanted. Memory is 64-byte aligned and not zeroed.
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

// Gives the cached blocks back to the system.
void release_cached_memory();

// Tests: the n-th allocation from now (1 = the next) fails as if memory were exhausted; 0 switches off.
void fail_allocation(std::int64_t n);

}  // namespace fovea::core
