// What the checks of src/cuda/ptx share.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "cuda/runtime/check.h"

namespace fovea::cuda {

// A vector that lies on the device while it lives; `read` brings it back.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& host) : count_(host.size()) {
    check(cudaMalloc(&data_, count_ * sizeof(T)), "cudaMalloc");
    check(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* data() const { return data_; }
  std::vector<T> read() const {
    check(cudaGetLastError(), "a kernel");
    std::vector<T> host(count_);
    check(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

struct NamedCheck {
  const char* name;
  bool (*holds)();
};

// Checks of what the thread blocks of a grid do together.
std::span<const NamedCheck> grid_checks();

// Checks of wgmma. If the code that the device runs has none, they say so and check nothing else.
std::span<const NamedCheck> wgmma_checks();

// Checks of TMA, and of products of what it loaded; none where the device's code has no wgmma.
std::span<const NamedCheck> tma_checks();

}  // namespace fovea::cuda
