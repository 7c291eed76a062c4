// Host tensors, copied to the first GPU for one call and back: so the checks of CPU answers check GPU answers too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fovea/attention.h"

namespace fovea::cuda {

struct HostTensorView {
  std::string name;
  TensorView view;
  bool is_written;  // by the call
};

// Copies with the same strides and the same alignment, surrounded by poison. Where a host tensor ends with its page,
// the allocation ends with the tensor, so that compute-sanitizer sees reads beyond it.
class DeviceTensors {
 public:
  explicit DeviceTensors(const std::vector<HostTensorView>& tensors);
  ~DeviceTensors();
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  MutableTensorView view(std::size_t index) const;  // of the tensor with this index in the list
  // Waits for the call and copies its outputs back. Throws Error if the call failed on the device, wrote outside a
  // tensor or changed an input.
  void bring_back() const;

 private:
  class Copy;
  std::vector<std::unique_ptr<Copy>> copies_;
};

// Device memory as large as a host workspace, filled with NaN, so that reads before the first write show.
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

// The saved state on the device, which forward allocates and backward uses; one at a time. Null if the host has none.
Buffer saved_on_device(const Buffer& host, bool forward);

void* checked_stream();  // the stream of calls on DeviceTensors

// Whether an illegal access has broken the CUDA context; every later call of the process then fails.
bool device_lost();

}  // namespace fovea::cuda
