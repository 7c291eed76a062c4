// A CUDA implementation behind a host face: tensors are copied to the device with the same strides and the same
// alignment, and results back, so that everything that checks CPU implementations checks this one.
#pragma once

#include "core/implementation.h"

namespace fovea::cuda::staged {

// "staged.cuda.any", for tensors on the CPU; runs only when named.
const core::Implementation& any();

// A device tensor's elements, those between rows included, with the same strides. Freed at the end.
class DeviceTensor {
 public:
  DeviceTensor() = default;
  explicit DeviceTensor(const TensorView& host);
  ~DeviceTensor();
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  const MutableTensorView& view() const { return view_; }
  void download(void* host) const;

 private:
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
  MutableTensorView view_;
};

}  // namespace fovea::cuda::staged
