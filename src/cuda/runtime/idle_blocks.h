// Memory of a device that calls are done with and later ones on the same stream may use: a stream's work runs in
// order. It spares short calls what the driver takes to allocate and free.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace fovea::cuda {

struct IdleBlock {
  std::uint64_t stream = 0;  // that used it last: the driver's id, which unlike its handle no other stream ever has
  void* data = nullptr;
  std::int64_t bytes = 0;
};

// Any thread may call.
class IdleBlocks {
 public:
  // Of all together. Those of streams that are gone stay, for nobody says that they are, so there must be an end.
  static constexpr std::size_t kMostBlocks = 64;
  static constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;

  // Whatever was kept of the stream last; without data if nothing was. From now on the caller's.
  IdleBlock take(std::uint64_t stream);

  // False: there is no room, and the block is still the caller's.
  bool keep(const IdleBlock& block) noexcept;

  std::vector<IdleBlock> take_all();

 private:
  std::mutex mutex_;
  std::array<IdleBlock, kMostBlocks> blocks_{};  // `count_` of them, the last that was kept behind the others
  std::size_t count_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace fovea::cuda
