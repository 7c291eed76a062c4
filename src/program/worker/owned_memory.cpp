// Memory of the host or of the first GPU.
#include "program/worker/owned_memory.h"

#include <new>

namespace fovea::program {

OwnedMemory::OwnedMemory(DeviceKind device, std::int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  if (device == DeviceKind::cuda) {
    on_device_ = cuda::DeviceMemory(bytes);
    return;
  }
  on_host_.reset(std::aligned_alloc(64, static_cast<std::size_t>((bytes + 63) / 64 * 64)));
  if (on_host_ == nullptr) throw std::bad_alloc();
}

Buffer OwnedMemory::buffer() const {
  if (bytes_ == 0) return {};
  return {on_host_ != nullptr ? on_host_.get() : on_device_.data(), bytes_};
}

}  // namespace fovea::program
