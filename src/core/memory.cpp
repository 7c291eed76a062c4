// A small cache of workspaces. Freeing and page-faulting tens of megabytes per call would take as long as short calls.
#include "core/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/binary_size.h"
#include "core/check.h"
#include "core/fork_safe_mutex.h"
#include "core/never_destroyed.h"

namespace fovea::core {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kHugePage = std::int64_t{1} << 21;
constexpr std::size_t kCachedBlocks = 8;

struct Block {
  void* data;
  std::int64_t bytes;
  std::thread::id user = {};  // the last one: the block may still be in its processor's caches
};

struct Cache {
  Cache() { free.reserve(kCachedBlocks + 1); }

  ForkSafeMutex mutex;
  std::vector<Block> free;  // its capacity is constant, so returning a block allocates nothing
  std::int64_t current = 0, peak = 0, fail_in = 0;
};

Cache& cache() {
  static auto& instance = never_destroyed<Cache>();
  return instance;
}

[[maybe_unused]] const Cache& made_at_load = cache();  // so that fork() cannot interrupt its construction

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

void* allocate(std::int64_t bytes) {
  const std::int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  void* data =
      std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(round_up(bytes, alignment)));
  // Large workspaces are read with long strides; huge pages need fewer TLB entries.
  if (data != nullptr && bytes >= kHugePage) madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  return data;
}

// Takes the smallest block that is large enough out of the cache, unless it is far too large. Of equal ones it takes
// the calling thread's last one.
Block take_cached(Cache& c, std::int64_t bytes) {
  const std::thread::id caller = std::this_thread::get_id();
  const auto is_better = [caller](const Block& one, const Block& other) {
    return one.bytes != other.bytes ? one.bytes < other.bytes : one.user == caller && other.user != caller;
  };
  auto best = c.free.end();
  for (auto it = c.free.begin(); it != c.free.end(); ++it) {
    if (it->bytes >= bytes && (best == c.free.end() || is_better(*it, *best))) best = it;
  }
  if (best == c.free.end() || best->bytes > 4 * bytes + kHugePage) return {nullptr, 0};
  const Block block = *best;
  c.free.erase(best);
  return block;
}

}  // namespace

WorkspaceLease::WorkspaceLease(std::int64_t bytes, std::string_view call) {
  if (bytes <= 0) return;
  Cache& c = cache();
  bool injected = false;
  {
    const std::lock_guard lock(c.mutex);
    injected = c.fail_in > 0 && --c.fail_in == 0;
    if (const Block block = injected ? Block{} : take_cached(c, bytes); block.data != nullptr) {
      data_ = block.data;
      bytes_ = block.bytes;
    }
  }
  if (data_ == nullptr && !injected) {
    bytes_ = bytes;
    data_ = allocate(bytes);
    if (data_ == nullptr) {
      release_cached_memory();
      data_ = allocate(bytes);
    }
  }
  if (data_ == nullptr) {
    fail({.status = Status::out_of_memory,
          .call = std::string(call),
          .problem = "the workspace could not be allocated",
          .got = "no memory",
          .wanted = binary_size(bytes),
          .hint = "pass a workspace, or ask for less at a time"});
  }
  const std::lock_guard lock(c.mutex);
  c.current += bytes_;
  if (c.current > c.peak) c.peak = c.current;
}

WorkspaceLease::~WorkspaceLease() {
  if (data_ == nullptr) return;
  Cache& c = cache();
  void* surplus = nullptr;
  {
    const std::lock_guard lock(c.mutex);
    c.current -= bytes_;
    c.free.push_back({data_, bytes_, std::this_thread::get_id()});
    if (c.free.size() > kCachedBlocks) {
      surplus = c.free.front().data;
      c.free.erase(c.free.begin());
    }
  }
  std::free(surplus);
}

MemoryCount memory_count() {
  const std::lock_guard lock(cache().mutex);
  return {cache().current, cache().peak};
}

void reset_memory_peak() {
  const std::lock_guard lock(cache().mutex);
  cache().peak = cache().current;
}

void release_cached_memory() {
  const std::lock_guard lock(cache().mutex);
  for (const auto& block : cache().free) std::free(block.data);
  cache().free.clear();
}

void fail_allocation(std::int64_t n) {
  const std::lock_guard lock(cache().mutex);
  cache().fail_in = n;
}

}  // namespace fovea::core
