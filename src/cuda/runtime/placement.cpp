// Pointers and streams, as the driver knows them.
#include "cuda/runtime/placement.h"

#include <cuda.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/problem_line.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"

namespace fovea::cuda {
namespace {

[[noreturn]] void refuse(const AttentionProblem& problem, std::string_view argument, std::string what, std::string got,
                         const std::string& wanted, std::string hint) {
  core::fail({.status = Status::invalid_argument,
              .call = problem.pass == Pass::forward ? "attention_forward" : "attention_backward",
              .argument = std::string(argument),
              .problem = std::move(what),
              .got = std::move(got),
              .wanted = wanted + " of cuda:" + std::to_string(problem.device.index),
              .hint = std::move(hint),
              .line = core::line_of(problem)});
}

// The driver's own question for one fact, in half the time of the runtime's for all; null if it cannot be found.
decltype(&cuPointerGetAttribute) find_pointer_attribute() {
  constexpr unsigned kDriver = 12000;  // its interface as of this version
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuPointerGetAttribute", &function, kDriver, cudaEnableDefault, &found);
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<decltype(&cuPointerGetAttribute)>(function);
}

// Whether the driver knows the pointer and places it on this device; if not, the runtime tells why.
bool lies_on(const void* pointer, int device) {
  static const auto pointer_attribute = find_pointer_attribute();
  int ordinal = -1;
  return pointer_attribute != nullptr &&
         pointer_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, reinterpret_cast<CUdeviceptr>(pointer)) ==
             CUDA_SUCCESS &&
         ordinal == device;
}

struct Placed {
  std::string_view name;
  const void* data;  // null: nothing is touched
};

// Nothing is read from an empty tensor, wherever it points.
template <class Pointer>
Placed placed(std::string_view name, const BasicTensorView<Pointer>& t) {
  const bool empty = t.sizes[0] == 0 || t.sizes[1] == 0 || t.sizes[2] == 0 || t.sizes[3] == 0;
  return {name, empty ? nullptr : t.data};
}

void check_memory(const AttentionProblem& problem, std::initializer_list<Placed> memory) {
  for (const Placed& one : memory) {
    if (one.data == nullptr || lies_on(one.data, problem.device.index)) continue;
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, one.data), "cudaPointerGetAttributes");
    if (attributes.type == cudaMemoryTypeUnregistered) {
      refuse(problem, one.name, "the view says cuda, its pointer is host memory",
             "a pointer that the driver does not know", "memory", "copy the tensor to the device, or say device cpu");
    }
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != problem.device.index)
      refuse(problem, one.name, "the tensor is on another device",
             "memory of cuda:" + std::to_string(attributes.device), "memory", "");
  }
}

}  // namespace

void check_placements(const AttentionProblem& problem, const ForwardTensors& t, const core::RunContext& context) {
  check_stream(context.stream, problem);
  check_memory(problem, {placed("q", t.q),
                         placed("k", t.k),
                         placed("v", t.v),
                         placed("out", t.out),
                         placed("lse", t.lse),
                         {"saved", t.saved.data},
                         {"workspace", context.workspace}});
}

void check_placements(const AttentionProblem& problem, const BackwardTensors& t, const core::RunContext& context) {
  check_stream(context.stream, problem);
  check_memory(problem, {placed("q", t.q),
                         placed("k", t.k),
                         placed("v", t.v),
                         placed("out", t.out),
                         placed("lse", t.lse),
                         placed("dout", t.dout),
                         placed("delta", t.delta),
                         placed("dq", t.dq),
                         placed("dk", t.dk),
                         placed("dv", t.dv),
                         {"saved", t.saved.data},
                         {"workspace", context.workspace}});
}

void check_stream(void* stream, const AttentionProblem& problem) {
  if (stream == nullptr || stream == cudaStreamPerThread || stream == cudaStreamLegacy) return;
  if (device_count() == 1) return;  // there is no other, and what the driver is asked costs every call
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(cuda_stream, &capture), "cudaStreamIsCapturing");
  if (capture != cudaStreamCaptureStatusNone) return;  // the driver does not answer then; the graph's launch will
  int device = 0;
  check(cudaStreamGetDevice(cuda_stream, &device), "cudaStreamGetDevice");
  if (device != problem.device.index)
    refuse(problem, "stream", "the stream belongs to another device", "a stream of cuda:" + std::to_string(device),
           "a stream", "");
}

}  // namespace fovea::cuda
