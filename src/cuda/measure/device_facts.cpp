// Facts from the CUDA runtime; clock and power from the management library, which is loaded if it is there.
#include "cuda/measure/device_facts.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>

#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"

namespace fovea::cuda {
namespace {

// The few functions of libnvidia-ml that are used, declared by hand: this needs neither its header nor linking.
class ManagementLibrary {
 public:
  ManagementLibrary() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    using Initialise = int (*)();
    const auto initialise = function<Initialise>("nvmlInit_v2");
    const auto find = function<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    clock_ = function<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    power_ = function<int (*)(void*, unsigned*)>("nvmlDeviceGetPowerUsage");
    driver_ = function<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
    std::array<char, 32> bus{};
    const bool asked = initialise != nullptr && find != nullptr && initialise() == 0 &&
                       cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), 0) == cudaSuccess;
    ready_ = asked && find(bus.data(), &device_) == 0;
  }

  std::string driver() const {
    std::array<char, 96> text{};
    const bool known = ready_ && driver_ != nullptr && driver_(text.data(), static_cast<unsigned>(text.size())) == 0;
    return known ? text.data() : "";
  }

  DeviceState state() const {
    constexpr int kSmClock = 1;  // NVML_CLOCK_SM
    DeviceState state;
    unsigned value = 0;
    if (ready_ && clock_ != nullptr && clock_(device_, kSmClock, &value) == 0) state.clock_mhz = value;
    if (ready_ && power_ != nullptr && power_(device_, &value) == 0) state.power_w = value / 1e3;
    return state;
  }

 private:
  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }

  void* library_ = nullptr;
  void* device_ = nullptr;
  bool ready_ = false;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*driver_)(char*, unsigned) = nullptr;
};

const ManagementLibrary& management() {
  static const ManagementLibrary library;
  return library;
}

}  // namespace

std::vector<DeviceFacts> device_facts() {
  std::vector<DeviceFacts> all;
  for (int device = 0; device < device_count(); ++device) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    all.push_back({.name = properties.name,
                   .major = properties.major,
                   .minor = properties.minor,
                   .sm_count = properties.multiProcessorCount,
                   .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                   .l2_bytes = properties.l2CacheSize,
                   .shared_bytes = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                   .max_clock_mhz = static_cast<double>(device_attribute(cudaDevAttrClockRate, device)) / 1e3});
  }
  return all;
}

std::string driver_text() {
  int version = 0;
  if (device_count() == 0 || cudaDriverGetVersion(&version) != cudaSuccess) return "";
  const std::string driver = management().driver();
  return (driver.empty() ? "" : driver + ", ") + "CUDA " + version_text(version);
}

double datasheet_flops(const DeviceFacts& facts, DType dtype) {
  struct Rate {
    int capability;
    double fp32, sixteen_bit;  // flops per cycle and SM
  };
  constexpr Rate kRates[] = {{80, 128, 2048}, {86, 256, 1024},  {87, 256, 1024},  {89, 256, 1024},
                             {90, 256, 4096}, {100, 256, 8192}, {103, 256, 8192}, {120, 256, 1024}};
  for (const Rate& rate : kRates) {
    if (rate.capability != 10 * facts.major + facts.minor) continue;
    return (dtype == DType::fp32 ? rate.fp32 : rate.sixteen_bit) * facts.sm_count * facts.max_clock_mhz * 1e6;
  }
  return 0;
}

DeviceState device_state() { return management().state(); }

}  // namespace fovea::cuda
