// Captures graphs, and reads their kernel nodes.
#include "cuda/measure/captured_graph.h"

#include <set>

#include "cuda/runtime/check.h"

namespace fovea::cuda {
namespace {

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  return nodes;
}

cudaError_t edges_of(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data,
                     std::size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphGetEdges(graph, from, to, data, count);
#else
  return cudaGraphGetEdges_v2(graph, from, to, data, count);
#endif
}

// Nodes with programmatic dependent launch. In a graph it is a type of edge, not an attribute of the node.
std::set<cudaGraphNode_t> programmatic_nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  check(edges_of(graph, nullptr, nullptr, nullptr, &count), "cudaGraphGetEdges");
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  if (count > 0) check(edges_of(graph, from.data(), to.data(), data.data(), &count), "cudaGraphGetEdges");
  std::set<cudaGraphNode_t> programmatic;
  for (std::size_t i = 0; i < count; ++i) {
    if (data[i].type == cudaGraphDependencyTypeProgrammatic) programmatic.insert(to[i]);
  }
  return programmatic;
}

// A carve-out that is not a percentage from 1 to 100 is not set.
bool is_set(cudaLaunchAttributeID id, const cudaLaunchAttributeValue& value) {
  if (id == cudaLaunchAttributeCooperative) return value.cooperative != 0;
  if (id == cudaLaunchAttributeClusterDimension) return value.clusterDim.x > 0;
  return value.sharedMemCarveout > 0 && value.sharedMemCarveout <= 100;
}

std::vector<cudaLaunchAttribute> attributes_of(cudaGraphNode_t node, bool programmatic) {
  std::vector<cudaLaunchAttribute> attributes;
  for (const cudaLaunchAttributeID id : {cudaLaunchAttributeCooperative, cudaLaunchAttributeClusterDimension,
                                         cudaLaunchAttributePreferredSharedMemoryCarveout}) {
    cudaLaunchAttribute one{};
    one.id = id;
    if (cudaGraphKernelNodeGetAttribute(node, id, &one.val) != cudaSuccess) {
      cudaGetLastError();  // the driver has no such attribute
    } else if (is_set(id, one.val)) {
      attributes.push_back(one);
    }
  }
  if (programmatic) {
    cudaLaunchAttribute one{};
    one.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    one.val.programmaticStreamSerializationAllowed = 1;
    attributes.push_back(one);
  }
  return attributes;
}

}  // namespace

CapturedGraph::CapturedGraph(cudaStream_t stream, const std::function<void()>& enqueue, int runs) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    for (int i = 0; i < runs; ++i) enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
}

CapturedGraph::~CapturedGraph() {
  if (graph_ != nullptr) cudaGraphDestroy(graph_);
}

LaunchList::LaunchList(CapturedGraph graph) : graph_(std::move(graph)) {
  const std::set<cudaGraphNode_t> programmatic = programmatic_nodes_of(graph_.get());
  for (const cudaGraphNode_t node : nodes_of(graph_.get())) {
    Launch launch{};
    check(cudaGraphKernelNodeGetParams(node, &launch.kernel), "cudaGraphKernelNodeGetParams");
    cudaFuncAttributes known{};
    check(cudaFuncGetAttributes(&known, launch.kernel.func), "cudaFuncGetAttributes");
    if (launch.kernel.kernelParams == nullptr) check(cudaErrorInvalidValue, "cudaGraphKernelNodeGetParams");
    launch.attributes = attributes_of(node, programmatic.contains(node));
    launches_.push_back(std::move(launch));
  }
}

void LaunchList::enqueue(cudaStream_t stream) const {
  for (const Launch& one : launches_) {
    cudaLaunchConfig_t config{};
    config.gridDim = one.kernel.gridDim;
    config.blockDim = one.kernel.blockDim;
    config.dynamicSmemBytes = one.kernel.sharedMemBytes;
    config.stream = stream;
    config.attrs = const_cast<cudaLaunchAttribute*>(one.attributes.data());
    config.numAttrs = static_cast<unsigned>(one.attributes.size());
    check(cudaLaunchKernelExC(&config, one.kernel.func, one.kernel.kernelParams), "cudaLaunchKernelExC");
  }
}

}  // namespace fovea::cuda
