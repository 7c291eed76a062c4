// Memory on the device of the case's tensors, which lives until the next `prepare`.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "cuda/measure/device_memory.h"
#include "fovea/attention.h"

namespace fovea::program {

class OwnedMemory {
 public:
  OwnedMemory() = default;
  OwnedMemory(DeviceKind device, std::int64_t bytes);  // not zeroed; throws if the allocation fails
  Buffer buffer() const;                               // null if `bytes` was 0

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::int64_t bytes_ = 0;
  std::unique_ptr<void, Free> on_host_;
  cuda::DeviceMemory on_device_;
};

}  // namespace fovea::program
