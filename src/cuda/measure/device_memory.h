// Memory of the first GPU that a program owns: tensors of a case, saved state, a workspace of its own.
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

  // All three wait for whatever the device still does.
  void poison();  // NaN in every element type
  void upload(const void* host);
  void download(void* host) const;

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Bytes that an allocation could still get; 0 without a GPU.
std::int64_t free_device_bytes();

// Most bytes that calls without a workspace of their own took at once since the last reset.
std::int64_t workspace_peak();
void reset_workspace_peak();

// Gives back what calls without a workspace of their own took and use no longer.
void give_workspaces_back();

}  // namespace fovea::cuda
