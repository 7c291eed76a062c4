// Barriers between the thread blocks of a cluster.
#pragma once

#include "cuda/ptx/cluster.cuh"

namespace fovea::cuda {

// Waits for every thread of the cluster; their writes to their own block's shared memory are visible afterwards.
__device__ __forceinline__ void cluster_barrier() {
  ptx::cluster_release_shared();
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

// Waits for every thread of the cluster to finish reading remote shared memory. It has no release: a load whose value
// was never used may still be in flight.
__device__ __forceinline__ void cluster_barrier_after_reads() {
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

}  // namespace fovea::cuda
