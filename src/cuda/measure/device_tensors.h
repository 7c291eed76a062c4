// Tensors that lie on the host, copied to the first GPU for one call and back: what checks answers on the CPU checks
// the GPU's as well.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fovea/attention.h"

namespace fovea::cuda {

struct HostSide {
  std::string name;
  TensorView tensor;
  bool is_written;  // by the call
};

// Copies with the same strides and the same alignment. A tensor that ends where a page ends has an allocation that ends
// with it (compute-sanitizer sees what is read behind it); round the others lies poison.
class DeviceTensors {
 public:
  explicit DeviceTensors(const std::vector<HostSide>& tensors);
  ~DeviceTensors();
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  MutableTensorView view(std::size_t index) const;  // of the tensor with this index in the list
  // Waits for the call and copies back what it wrote. Throws Error for what went wrong on the device, for a write
  // outside a tensor and for a changed input.
  void bring_back() const;

 private:
  class Copy;
  std::vector<std::unique_ptr<Copy>> copies_;
};

// As many bytes as a workspace of the host, full of NaN, so that whatever is read before it is written shows.
class DeviceScratch {
 public:
  explicit DeviceScratch(const Buffer& host);
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;
  Buffer buffer() const { return {data_, bytes_}; }

 private:
  std::int64_t bytes_;
  void* data_ = nullptr;
};

// State that forward leaves for backward stays on the device in between; one at a time. Null where the host has none.
Buffer saved_on_device(const Buffer& host, bool forward);

void* checked_stream();  // that such calls are enqueued on

// After an access to memory that is not there every call of the process fails.
bool device_lost();

}  // namespace fovea::cuda
