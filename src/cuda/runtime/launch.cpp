// Launches, and the driver's answers about kernels, each kept for the life of the process.
#include "cuda/runtime/launch.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "core/environment.h"
#include "core/never_destroyed.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"

namespace fovea::cuda {
namespace {

constexpr int kPortableCluster = 8;  // thread blocks: the largest cluster that every GPU with clusters runs
constexpr int kPdlAndClusters = 90;  // from sm_90 on: ptx/grid_dependency.cuh, ptx/cluster.cuh

// Whether the code that the current device runs was compiled with PDL and clusters. A device newer than this build runs
// the code of an older one. One answer per device is enough: all kernels of a build have the same architectures.
bool has_pdl_and_clusters(const void* function) {
  enum : std::int8_t { unknown, no, yes };
  static std::array<std::atomic<std::int8_t>, kMaxDevices> known{};
  auto& answer = known[static_cast<std::size_t>(current_device() % kMaxDevices)];
  if (answer == unknown) {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, function), "cudaFuncGetAttributes");
    answer = attributes.ptxVersion >= kPdlAndClusters ? yes : no;
  }
  return answer == yes;
}

cudaLaunchAttribute cluster_of(int ctas) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(ctas);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  return attribute;
}

// A kernel is loaded at its first launch. If there is no memory for it, this launch fails with out_of_memory. Driver 580
// then never loads the kernel again: later launches fail with cudaErrorUnknown, whatever memory is free.
void check_launch(cudaError_t status) {
  if (status != cudaErrorUnknown) return check(status, "cudaLaunchKernelExC");
  cudaGetLastError();  // so that the next check does not see this failure
  core::fail({.status = Status::error,
              .call = "cudaLaunchKernelExC",
              .problem = std::string(kNotLaunched),
              .got = text_of(status),
              .wanted = "cudaSuccess",
              .hint = "if its first launch failed for lack of memory, the driver does not load it again: start a new "
                      "process, or set CUDA_MODULE_LOADING=EAGER"});
}

}  // namespace

int resident_ctas(const void* function, int threads, int shared_bytes, int device) {
  static std::mutex mutex;
  static auto& known = core::never_destroyed<std::map<std::tuple<const void*, int, int, int>, int>>();
  const std::tuple key(function, threads, shared_bytes, device);
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const CurrentDevice current(device);
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, device_info(device).shared_limit),
        "cudaFuncSetAttribute");
  int ctas = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, function, threads, static_cast<std::size_t>(shared_bytes)),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  known[key] = ctas;
  return ctas;
}

int threads_allowed(const void* function, int device) {
  static std::mutex mutex;
  static auto& known = core::never_destroyed<std::map<std::pair<const void*, int>, int>>();
  const std::lock_guard lock(mutex);
  if (const auto found = known.find({function, device}); found != known.end()) return found->second;
  const CurrentDevice current(device);
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, function), "cudaFuncGetAttributes");
  known[{function, device}] = attributes.maxThreadsPerBlock;
  return attributes.maxThreadsPerBlock;
}

bool has_code(const void* function, int device) {
  const CurrentDevice current(device);
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, function) == cudaSuccess) return true;
  cudaGetLastError();  // else later calls would report it
  return false;
}

int resident_clusters(const void* function, int threads, int shared_bytes, int cluster, int device) {
  static std::mutex mutex;
  static auto& known = core::never_destroyed<std::map<std::tuple<const void*, int, int, int, int>, int>>();
  const std::tuple key(function, threads, shared_bytes, cluster, device);
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const CurrentDevice current(device);
  int clusters = 0;
  if (has_pdl_and_clusters(function)) {
    if (cluster > kPortableCluster)
      check(cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "cudaFuncSetAttribute");
    cudaLaunchAttribute attribute = cluster_of(cluster);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(cluster));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.attrs = &attribute;
    config.numAttrs = 1;
    check(cudaOccupancyMaxActiveClusters(&clusters, function, &config), "cudaOccupancyMaxActiveClusters");
  }
  known[key] = clusters;
  return clusters;
}

bool pdl_enabled() {
  static const bool enabled = core::environment("FOVEA_CUDA_EARLY_LAUNCH") != "0";
  return enabled;
}

void launch(const void* function, std::int64_t ctas, int threads, int shared_bytes, cudaStream_t stream,
            const void* parameters, Dependency dependency, Carveout carveout, int cluster) {
  if (ctas == 0) return;
  void* arguments[] = {const_cast<void*>(parameters)};
  cudaLaunchAttribute attributes[3]{};
  unsigned count = 0;
  if (carveout == Carveout::max_shared) {
    attributes[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[count++].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  }
  if (cluster > 1) attributes[count++] = cluster_of(cluster);
  if (dependency == Dependency::programmatic && pdl_enabled() && has_pdl_and_clusters(function)) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check_launch(cudaLaunchKernelExC(&config, function, arguments));
}

}  // namespace fovea::cuda
