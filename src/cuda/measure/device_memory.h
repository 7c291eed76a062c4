// Memory of the first GPU that a program allocates: tensors of a case, saved state, workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace fovea::cuda {

// Not zeroed. Throws Error(out_of_memory) with the bytes wanted and free.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::int64_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

  // On the default stream: poison and upload do not wait for earlier work on non-blocking streams.
  void poison();  // NaN in every element type
  void upload(const void* host);
  void download(void* host) const;  // waits for all work of the device

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Free bytes of the device; 0 without a GPU.
std::int64_t free_device_bytes();

// Peak bytes of the library's workspace pool since the last reset.
std::int64_t workspace_peak();
void reset_workspace_peak();

// Returns the pool's unused memory to the device.
void give_workspaces_back();

}  // namespace fovea::cuda
