// Barriers between the thread blocks of a cluster.
#pragma once

#include "cuda/ptx/cluster.cuh"

namespace fovea::cuda {

// Waits for every thread of the cluster that has not exited. Afterwards the writes of each to its thread block's shared
// memory are visible to all.
__device__ __forceinline__ void cluster_barrier() {
  ptx::cluster_release_shared();
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

// The same, after reads of other thread blocks' shared memory: nobody exits or overwrites it while another still reads.
// There is no release, so this orders only loads whose values were used: use every value that is loaded before it.
__device__ __forceinline__ void cluster_barrier_after_reads() {
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

}  // namespace fovea::cuda
