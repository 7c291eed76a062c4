// What is asked of the driver once per kernel is asked again wherever the answer may differ: on any machine.
#include "cuda/runtime/launch.h"

#include <gtest/gtest.h>

#include "cuda/runtime/device_info.h"

namespace fovea::cuda {
namespace {

int asked = 0;  // how often the driver was asked

}  // namespace

// In the place of the library's own, which ask the driver.
const DeviceInfo& device_info(int) {
  static const DeviceInfo info{.name = "described", .shared_limit = 227 * 1024};
  return info;
}
int current_device() { return 0; }
CurrentDevice::CurrentDevice(int) {}
CurrentDevice::~CurrentDevice() = default;

}  // namespace fovea::cuda

// In the place of the driver's.
extern "C" {
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->ptxVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, size_t shared_bytes) {
  ++fovea::cuda::asked;
  *blocks = 2048 / threads + static_cast<int>(shared_bytes);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t* config) {
  ++fovea::cuda::asked;
  *clusters = 2048 / static_cast<int>(config->blockDim.x) + static_cast<int>(config->dynamicSmemBytes);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t*, size_t*) { return cudaErrorUnknown; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return ""; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
}

namespace fovea::cuda {
namespace {

TEST(Launch, ResidentBlocksDependOnThreadsAndBytes) {
  static const int kernel = 0;
  asked = 0;
  EXPECT_EQ(resident_ctas(&kernel, 128, 0, 0), 16);
  EXPECT_EQ(resident_ctas(&kernel, 256, 0, 0), 8);
  EXPECT_EQ(resident_ctas(&kernel, 128, 3, 0), 19);
  EXPECT_EQ(resident_ctas(&kernel, 128, 0, 1), 16);
  EXPECT_EQ(resident_ctas(&kernel, 256, 0, 0), 8);
  EXPECT_EQ(asked, 4);
}

TEST(Launch, ResidentClustersDependOnThreadsAndBytes) {
  static const int kernel = 0;
  asked = 0;
  EXPECT_EQ(resident_clusters(&kernel, 128, 0, 2, 0), 16);
  EXPECT_EQ(resident_clusters(&kernel, 256, 0, 2, 0), 8);
  EXPECT_EQ(resident_clusters(&kernel, 128, 3, 2, 0), 19);
  EXPECT_EQ(resident_clusters(&kernel, 128, 3, 4, 0), 19);
  EXPECT_EQ(resident_clusters(&kernel, 256, 0, 2, 0), 8);
  EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace fovea::cuda
