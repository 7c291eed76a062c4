// A tensor of a case in host memory, at the case's placement.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "fovea/attention.h"
#include "verification/operation.h"

namespace fovea::verification {

// One tensor with its memory. NaN patterns between rows reveal accesses outside the tensor. Guarded placements also
// have a protected page directly after (or before) the data.
class HostTensor {
 public:
  HostTensor() = default;
  // The memory is poisoned. `place` is a name of kPlacements; `seed` chooses the dimension that is broadcast.
  HostTensor(const TensorSpec& tensor, std::string_view place, std::uint64_t seed);

  const MutableTensorView& view() const { return view_; }
  void poison();                // fills the whole allocation with NaN patterns
  bool padding_intact() const;  // nothing but the tensor's own elements was written since poison()

 private:
  std::shared_ptr<std::byte> memory_;
  std::int64_t allocated_bytes_ = 0;
  MutableTensorView view_;
};

// Poisoned, 64-byte aligned memory for a workspace or for saved state. If guarded, a protected page follows its last
// byte.
HostTensor host_buffer(std::int64_t bytes, bool guarded = false);
Buffer buffer_of(const HostTensor& memory);

}  // namespace fovea::verification
