// The work that a function enqueues on a stream, as a CUDA graph and as a list of launches.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <utility>
#include <vector>

namespace fovea::cuda {

// Captures `runs` calls of the function, one after another. The function must neither allocate nor wait.
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

// The kernels of a graph. enqueue() launches them one by one with their captured parameters and attributes.
class LaunchList {
 public:
  // Throws Error if a node is not a kernel, or is a kernel of another library, which cannot be launched from here.
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
