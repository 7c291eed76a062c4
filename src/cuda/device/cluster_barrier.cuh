// How the blocks of a cluster wait for each other.
#pragma once

#include "cuda/ptx/cluster.cuh"

namespace fovea::cuda {

// Every thread of the cluster has come here, and what each wrote to the shared memory of its own block can be read.
__device__ __forceinline__ void cluster_barrier() {
  ptx::cluster_release_shared();
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

// Every thread of the cluster has come here, and has used what it read of the others: it releases nothing, so a read
// whose value was not used may still be under way.
__device__ __forceinline__ void cluster_barrier_after_reading() {
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

}  // namespace fovea::cuda
