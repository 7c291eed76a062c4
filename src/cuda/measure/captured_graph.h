// What a function enqueues on a stream, as a CUDA graph and as a list of launches.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <utility>
#include <vector>

namespace fovea::cuda {

// `runs` calls of the function, each after the one before. What is enqueued must not allocate and not wait.
class CapturedGraph {
 public:
  CapturedGraph(cudaStream_t stream, const std::function<void()>& enqueue, int runs);
  ~CapturedGraph();
  CapturedGraph(CapturedGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  CapturedGraph& operator=(CapturedGraph&&) = delete;

  cudaGraph_t get() const { return graph_; }

 private:
  cudaGraph_t graph_ = nullptr;
};

// The kernels of a graph, to be launched one by one with the parameters and attributes that they were captured with.
class LaunchList {
 public:
  // Throws Error where a node is no kernel, or none that can be launched from here (those of other libraries).
  explicit LaunchList(CapturedGraph graph);

  std::size_t size() const { return launches_.size(); }
  void enqueue(cudaStream_t stream) const;

 private:
  struct Launch {
    cudaKernelNodeParams kernel;  // the graph owns what it points to
    std::vector<cudaLaunchAttribute> attributes;
  };

  CapturedGraph graph_;
  std::vector<Launch> launches_;
};

}  // namespace fovea::cuda
