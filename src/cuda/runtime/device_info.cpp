// Device properties, kept for the life of the process.
#include "cuda/runtime/device_info.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "core/environment.h"
#include "core/never_destroyed.h"
#include "cuda/runtime/check.h"

namespace fovea::cuda {
namespace {

DeviceInfo ask(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return {.name = properties.name,
          .major = properties.major,
          .minor = properties.minor,
          .sm_count = properties.multiProcessorCount,
          .shared_limit = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          .shared_per_sm = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device)};
}

// FOVEA_CUDA_SHARED_LIMIT in bytes; 0 if it is not set, or not a number.
int shared_cap() {
  static const int cap = [] {
    const std::string_view text = core::environment("FOVEA_CUDA_SHARED_LIMIT");
    int bytes = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
    return error == std::errc() && end == text.data() + text.size() ? std::max(bytes, 0) : 0;
  }();
  return cap;
}

std::string find_obstacle() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no device: no NVIDIA driver";
    if (status == cudaErrorInsufficientDriver)
      return "no device: the driver is too old, it speaks CUDA " + version_text(driver) + ", this build " +
             version_text(CUDART_VERSION);
    return "no device: " + text_of(status);
  }
  if (count == 0) return "no device: the driver lists no GPU";
  for (int device = 0; device < count; ++device) {
    if (device_attribute(cudaDevAttrComputeCapabilityMajor, device) >= kMinMajor) return {};
  }
  return "no device: " + capability_refusal(device_info(0));
}

}  // namespace

const DeviceInfo& device_info(int device) {
  static std::array<std::once_flag, kMaxDevices> asked;
  static auto& infos = core::never_destroyed<std::array<DeviceInfo, kMaxDevices>>();
  if (device < 0 || device >= std::min(device_count(), kMaxDevices)) {
    core::fail({.status = Status::invalid_argument,
                .argument = "device",
                .problem = "no such device",
                .got = "cuda:" + std::to_string(device),
                .wanted = std::to_string(device_count()) + " devices, counted from 0"});
  }
  const auto i = static_cast<std::size_t>(device);
  std::call_once(asked[i], [&] { infos[i] = ask(device); });
  return infos[i];
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string unavailable() {
  static const auto& obstacle = core::never_destroyed<std::string>(find_obstacle());
  return obstacle;
}

int device_count() {
  static const int count = [] {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess) cudaGetLastError();
    return devices;
  }();
  return count;
}

int usable_shared_memory(int device) {
  const int limit = device_info(device).shared_limit, cap = shared_cap();
  return cap > 0 ? std::min(cap, limit) : limit;
}

int current_device() {
  int device = 0;
  if (device_count() > 1) check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

CurrentDevice::CurrentDevice(int device) : before_(current_device()) {
  if (before_ == device) return;
  check(cudaSetDevice(device), "cudaSetDevice");
  changed_ = true;
}

CurrentDevice::~CurrentDevice() {
  if (changed_) cudaSetDevice(before_);
}

}  // namespace fovea::cuda
