// A tensor of a case on the host, placed as the case says.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "fovea/attention.h"
#include "verification/operation.h"

namespace fovea::verification {

// One tensor with its memory. The NaN patterns between rows and, for the guarded placements, the protected page right
// after (or before) the data make reads and writes outside the tensor visible.
class HostTensor {
 public:
  HostTensor() = default;
  // Poisoned, not filled. `place` is a name of kPlacements; `seed` chooses the dimension that is broadcast.
  HostTensor(const TensorSpec& tensor, std::string_view place, std::uint64_t seed);

  const MutableTensorView& view() const { return view_; }
  void poison();                // every byte of the allocation to NaN patterns
  bool padding_intact() const;  // nothing but the tensor's own elements was written since poison()

 private:
  std::shared_ptr<std::byte> memory_;
  std::int64_t allocated_bytes_ = 0;
  MutableTensorView view_;
};

// Memory for a workspace or for saved state, 64-byte aligned and poisoned; guarded: its last byte is the last before a
// protected page.
HostTensor host_buffer(std::int64_t bytes, bool guarded = false);
Buffer buffer_of(const HostTensor& memory);

}  // namespace fovea::verification
