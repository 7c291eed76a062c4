// Device memory that a call has finished with, kept for later calls on the same stream, whose work runs in order. This
// saves short calls the driver's time to allocate and free.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace fovea::cuda {

struct IdleBlock {
  std::uint64_t stream = 0;  // that used it last: the driver's id, which unlike a handle is never reused
  void* data = nullptr;
  std::int64_t bytes = 0;
};

// Any thread may call.
class IdleBlocks {
 public:
  // Limits of all blocks together. Blocks of destroyed streams stay, since nobody reports them, so there must be a
  // limit.
  static constexpr std::size_t kMostBlocks = 64;
  static constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;

  // Hands over the block of the stream that was kept last; no data if there is none.
  IdleBlock take(std::uint64_t stream);

  // False: the limits are reached, and the block is still the caller's.
  bool keep(const IdleBlock& block) noexcept;

  std::vector<IdleBlock> take_all();

 private:
  std::mutex mutex_;
  std::array<IdleBlock, kMostBlocks> blocks_{};  // the first `count_` are in use, the last kept at the end
  std::size_t count_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace fovea::cuda
