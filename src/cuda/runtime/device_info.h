// Properties of a GPU, asked once per device; and the current device.
#pragma once

#include <cstdint>
#include <string>

namespace fovea::cuda {

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;
  int sm_count = 0;
  int shared_limit = 0;   // bytes of shared memory per thread block
  int shared_per_sm = 0;  // of all its thread blocks, each of which takes 1,024 bytes more than it asks for
};

inline constexpr int kMaxDevices = 64;  // devices of a higher number are refused

// Throws Error if there is no such device, or if the driver does not answer. The error names no call: all ask here.
const DeviceInfo& device_info(int device);

inline constexpr int kMinMajor = 8;  // the kernels need compute capability 8.0

// Empty, or why the kernels do not run on such a device.
inline std::string capability_refusal(const DeviceInfo& device) {
  if (device.major >= kMinMajor) return {};
  return device.name + " has compute capability " + std::to_string(device.major) + "." + std::to_string(device.minor) +
         ", the kernels need " + std::to_string(kMinMajor) + ".0 or higher";
}

// A CUDA version number as text: 13000 -> "13.0".
std::string version_text(int version);

// "no device: ..." if no GPU of this machine runs the kernels; else empty. Asked once.
std::string unavailable();
int device_count();

// The calling thread's device. The driver is not asked if there is only one.
int current_device();

// Shared memory that tiles may use, in bytes: the device's limit, or FOVEA_CUDA_SHARED_LIMIT if that is less.
int usable_shared_memory(int device);

// Makes a device the calling thread's current one until the end of the scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace fovea::cuda
