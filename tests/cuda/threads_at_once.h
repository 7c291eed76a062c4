// Threads that call at once, on streams of their own on the first two devices.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"

namespace fovea::cuda {

inline int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

// Two, or one where the machine has no more.
inline int used_devices() { return std::min(2, device_count()); }

// A stream of each of them.
class DeviceStreams {
 public:
  DeviceStreams() {
    for (int device = 0; device < used_devices(); ++device) {
      const CurrentDevice current(device);
      check(cudaStreamCreateWithFlags(&streams_.emplace_back(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
  }
  ~DeviceStreams() {
    for (const cudaStream_t stream : streams_) cudaStreamSynchronize(stream), cudaStreamDestroy(stream);
  }
  DeviceStreams(const DeviceStreams&) = delete;
  DeviceStreams& operator=(const DeviceStreams&) = delete;

  cudaStream_t get(int device) const { return streams_[static_cast<std::size_t>(device)]; }

 private:
  std::vector<cudaStream_t> streams_;
};

// Calls task(number) on `count` threads at once. Returns what each of them threw, or nothing.
template <class Task>
std::vector<std::string> at_once(int count, Task task) {
  std::vector<std::string> said(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int number = 0; number < count; ++number) {
    threads.emplace_back([&said, &task, number] {
      try {
        task(number);
      } catch (const std::exception& error) {
        said[static_cast<std::size_t>(number)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return said;
}

}  // namespace fovea::cuda
