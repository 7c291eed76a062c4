// Device memory that a call has finished with, kept for later calls on the same stream. Calls on one stream run in
// order, so the next call may use it at once. Short calls save the time that the driver takes to allocate and free.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace fovea::cuda {

struct IdleBlock {
  std::uint64_t stream = 0;  // the driver's id of the stream that used it last; unlike a handle, never reused
  void* data = nullptr;
  std::int64_t bytes = 0;
};

// Any thread may call.
class IdleBlocks {
 public:
  // Limits of all blocks together. They are needed because blocks of destroyed streams stay: nobody reports them.
  static constexpr std::size_t kMostBlocks = 64;
  static constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;

  // Removes and returns the most recently kept block of the stream; its data is null if there is none.
  IdleBlock take(std::uint64_t stream);

  // Returns false, and leaves the block with the caller, if it would exceed the limits.
  bool keep(const IdleBlock& block) noexcept;

  std::vector<IdleBlock> take_all();

 private:
  std::mutex mutex_;
  std::array<IdleBlock, kMostBlocks> blocks_{};  // the first `count_` are in use, the last kept at the end
  std::size_t count_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace fovea::cuda
