// Pointers and streams, as the driver knows them.
#include "cuda/runtime/placement.h"

#include <cuda.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/problem_line.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/driver_function.h"

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

// An allocation on the device of the call.
struct Allocation {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool holds(const void* pointer) const { return reinterpret_cast<std::uintptr_t>(pointer) - begin < bytes; }
};

// The allocation that the pointer lies in; of 0 bytes if the driver knows none, or not on this device.
Allocation allocation_of(const void* pointer, int device) {
  static const auto pointer_attributes = driver_function<decltype(&cuPointerGetAttributes)>("cuPointerGetAttributes");
  Allocation found;
  int ordinal = -1;
  CUpointer_attribute facts[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* to[] = {&ordinal, &found.begin, &found.bytes};
  const bool known = pointer_attributes != nullptr &&
                     pointer_attributes(3, facts, to, reinterpret_cast<CUdeviceptr>(pointer)) == CUDA_SUCCESS;
  return known && ordinal == device ? found : Allocation{};
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

// Neighbours in the list often share an allocation, as those of PyTorch's allocator do: then it is asked for once.
void check_memory(const AttentionProblem& problem, std::initializer_list<Placed> memory) {
  Allocation known{};
  for (const Placed& one : memory) {
    if (one.data == nullptr || known.holds(one.data)) continue;
    known = allocation_of(one.data, problem.device.index);
    if (known.holds(one.data)) continue;  // if not, the runtime tells why
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
                         placed("dout", t.dout),
                         placed("out", t.out),
                         placed("lse", t.lse),
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
