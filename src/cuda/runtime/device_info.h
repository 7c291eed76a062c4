// What a GPU can do, asked once per device; and the device that calls are made for.
#pragma once

#include <cstdint>
#include <string>

namespace fovea::cuda {

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;
  int multiprocessors = 0;
  int shared_limit = 0;              // bytes of shared memory that one block may ask for
  int shared_of_multiprocessor = 0;  // that its blocks have together, each with 1 KB more than it asks for
};

// Throws Error if the driver does not answer.
const DeviceInfo& device_info(int device);

inline constexpr int kLeastMajor = 8;  // of the compute capability that the kernels need

// Empty, or why the kernels do not run on such a device.
inline std::string capability_refusal(const DeviceInfo& device) {
  if (device.major >= kLeastMajor) return {};
  return device.name + " has compute capability " + std::to_string(device.major) + "." + std::to_string(device.minor) +
         ", the kernels need " + std::to_string(kLeastMajor) + ".0 or higher";
}

// "no device: ..." if this machine has no GPU that the kernels run on; empty otherwise. Asked once.
std::string unavailable();
int device_count();

// The calling thread's; not asked of the driver where there is only one.
int current_device();

// Bytes of shared memory that tiles may use: the device's limit, or less if FOVEA_CUDA_SHARED_LIMIT says so.
int usable_shared_memory(int device);

// Makes a device the calling thread's current one, and the former one again at the end.
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
