// The instructions of src/cuda/ptx by which kernels and thread blocks wait for each other, on the device.
#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/runtime/launch.h"
#include "ptx_checks.h"

namespace fovea::cuda {
namespace {

// Thread block n writes late, after it has launched the dependent kernel.
__global__ void write_late(unsigned* numbers) {
  ptx::griddepcontrol_launch_dependents();
  for (int i = 0; i < 200; ++i) __nanosleep(500);
  numbers[blockIdx.x] = blockIdx.x + 1;
}

struct FromTo {
  const unsigned* from;
  unsigned* to;
};
// Reads what all thread blocks of the kernel ahead wrote.
__global__ void double_reversed(const __grid_constant__ FromTo p) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  p.to[blockIdx.x] = 2 * p.from[gridDim.x - 1 - blockIdx.x];
}

bool programmatic_kernels_wait() {
  constexpr std::size_t kBlocks = 64;
  const std::vector<unsigned> zeros(kBlocks);
  for (int round = 0; round < 20; ++round) {
    const OnDevice<unsigned> a(zeros), b(zeros), c(zeros);
    write_late<<<kBlocks, 1>>>(a.data());
    const FromTo first{a.data(), b.data()}, second{b.data(), c.data()};
    const auto* function = reinterpret_cast<const void*>(&double_reversed);
    launch(function, kBlocks, 1, 0, nullptr, &first, Dependency::programmatic);
    launch(function, kBlocks, 1, 0, nullptr, &second, Dependency::programmatic);
    const auto got = c.read();
    for (std::size_t i = 0; i < kBlocks; ++i) {
      if (got[i] != 4 * (i + 1)) return false;
    }
  }
  return true;
}

constexpr int kCluster = 4;

// Each thread block of a cluster writes four numbers to its shared memory and reads those of the next but one: all
// four, then the last two.
__global__ void read_across(float* numbers) {
  __shared__ __align__(16) float own[4];
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  for (int i = 0; i < rank; ++i) __nanosleep(5000);  // the barrier must wait for the last
  for (int i = 0; i < 4; ++i) own[i] = static_cast<float>(4 * blockIdx.x + i);
  ptx::cluster_release_shared();
  ptx::cluster_arrive();
  ptx::cluster_wait();
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
  const std::uint32_t there = ptx::cluster_address(address, (rank + 2) % kCluster);
  const float4 all = ptx::load_cluster_float4(there);
  const float2 half = ptx::load_cluster_float2(there + 8);
  const float read[] = {all.x, all.y, all.z, all.w, half.x, half.y};
  for (int i = 0; i < 6; ++i) numbers[6 * blockIdx.x + i] = read[i];
  ptx::cluster_arrive();
  ptx::cluster_wait();
  own[rank] = -1.0f;  // nobody reads it any more
}

bool clusters_read_across() {
  constexpr int kBlocks = 64 * kCluster;
  const auto* function = reinterpret_cast<const void*>(&read_across);
  if (resident_clusters(function, 1, 0, kCluster, 0) == 0) return true;  // before sm_90 there are none
  const OnDevice<float> numbers(std::vector<float>(6 * kBlocks));
  float* data = numbers.data();
  launch(function, kBlocks, 1, 0, nullptr, &data, Dependency::full, Carveout::as_needed, kCluster);
  const auto got = numbers.read();
  for (int block = 0; block < kBlocks; ++block) {
    const int from = block / kCluster * kCluster + (block + 2) % kCluster;
    for (int i = 0; i < 6; ++i) {
      if (got[static_cast<std::size_t>(6 * block + i)] != static_cast<float>(4 * from + (i < 4 ? i : i - 2)))
        return false;
    }
  }
  return true;
}

}  // namespace

std::span<const NamedCheck> grid_checks() {
  static constexpr NamedCheck kChecks[] = {{"griddepcontrol", programmatic_kernels_wait},
                                           {"fence, barrier.cluster, mapa, ld.shared::cluster", clusters_read_across}};
  return kChecks;
}

}  // namespace fovea::cuda
