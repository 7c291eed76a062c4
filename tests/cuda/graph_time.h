// The time of a call among dependent ones of a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "cuda/runtime/check.h"

namespace fovea::cuda {

using Enqueue = std::function<void(cudaStream_t)>;

// Microseconds of one of `nodes` calls, the best of three launches after a first one.
inline double node_us(const Enqueue& enqueue, int nodes) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < nodes; ++i) enqueue(stream);
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  float best = HUGE_VALF;
  for (int i = 0; i < 4; ++i) {
    cudaEventRecord(begin, stream);
    check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    cudaEventRecord(end, stream);
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i > 0) best = std::min(best, ms);
  }
  cudaGraphExecDestroy(executable), cudaGraphDestroy(graph);
  cudaEventDestroy(begin), cudaEventDestroy(end), cudaStreamDestroy(stream);
  return 1e3 * static_cast<double>(best) / nodes;
}

}  // namespace fovea::cuda
