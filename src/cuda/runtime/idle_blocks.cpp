// A short list that is searched linearly.
#include "cuda/runtime/idle_blocks.h"

#include <algorithm>

namespace fovea::cuda {

IdleBlock IdleBlocks::take(std::uint64_t stream) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = count_; i-- > 0;) {
    const IdleBlock block = blocks_[i];
    if (block.stream != stream) continue;
    std::copy(blocks_.begin() + i + 1, blocks_.begin() + count_, blocks_.begin() + i);
    --count_;
    bytes_ -= block.bytes;
    return block;
  }
  return {};
}

bool IdleBlocks::keep(const IdleBlock& block) noexcept {
  const std::lock_guard lock(mutex_);
  if (count_ == kMostBlocks || block.bytes > kMostBytes - bytes_) return false;
  blocks_[count_++] = block;
  bytes_ += block.bytes;
  return true;
}

std::vector<IdleBlock> IdleBlocks::take_all() {
  const std::lock_guard lock(mutex_);
  const std::vector<IdleBlock> all(blocks_.begin(), blocks_.begin() + count_);
  count_ = 0;
  bytes_ = 0;
  return all;
}

}  // namespace fovea::cuda
