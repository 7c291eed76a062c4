// Asks the driver about pointers and streams, and refuses those of other devices.
#include "cuda/runtime/placement.h"

#include <cuda.h>

#include <string>
#include <string_view>

#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/driver_function.h"

namespace fovea::cuda {
namespace {

// `details.wanted`: what must be on the call's device.
[[noreturn]] void refuse(const CallSite& site, ErrorDetails details) {
  details.status = Status::invalid_argument;
  details.call = site.call;
  details.wanted += " of cuda:" + std::to_string(site.device);
  details.line = site.line();
  core::fail(std::move(details));
}

// An allocation on the device of the call.
struct Allocation {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool holds(const void* pointer) const { return reinterpret_cast<std::uintptr_t>(pointer) - begin < bytes; }
};

// The allocation that contains the pointer; of 0 bytes if the driver knows none, or if it is on another device.
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

}  // namespace

CallSite site_of(const core::Plan& plan) {
  return {plan.call, plan.device.index, [&plan] { return plan.line(); }};
}

void check_memory(std::span<const Placed> memory, const CallSite& site) {
  Allocation known{};
  for (const Placed& one : memory) {
    if (one.data == nullptr || known.holds(one.data)) continue;
    known = allocation_of(one.data, site.device);
    if (known.holds(one.data)) continue;  // otherwise the runtime is asked why
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, one.data), "cudaPointerGetAttributes");
    if (attributes.type == cudaMemoryTypeUnregistered) {
      refuse(site, {.argument = std::string(one.name),
                    .problem = "the view says cuda, its pointer is host memory",
                    .got = "a pointer that the driver does not know",
                    .wanted = "memory",
                    .hint = "copy the tensor to the device, or say device cpu"});
    }
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != site.device) {
      refuse(site, {.argument = std::string(one.name),
                    .problem = "the tensor is on another device",
                    .got = "memory of cuda:" + std::to_string(attributes.device),
                    .wanted = "memory"});
    }
  }
}

void check_placements(const core::Plan& plan, const ForwardTensors& t, const core::RunContext& context) {
  if (context.placement_checked) return;
  const CallSite site = site_of(plan);
  check_stream(context.stream, site);
  const Placed memory[] = {placed("q", t.q),          placed("k", t.k),     placed("v", t.v),
                           placed("out", t.out),      placed("lse", t.lse), {"saved", t.saved.data},
                           callers_workspace(context)};
  check_memory(memory, site);
}

void check_placements(const core::Plan& plan, const BackwardTensors& t, const core::RunContext& context) {
  if (context.placement_checked) return;
  const CallSite site = site_of(plan);
  check_stream(context.stream, site);
  const Placed memory[] = {placed("q", t.q),         placed("k", t.k),        placed("v", t.v),
                           placed("dout", t.dout),   placed("out", t.out),    placed("lse", t.lse),
                           placed("delta", t.delta), placed("dq", t.dq),      placed("dk", t.dk),
                           placed("dv", t.dv),       {"saved", t.saved.data}, callers_workspace(context)};
  check_memory(memory, site);
}

void check_stream(void* stream, const CallSite& site) {
  if (stream == nullptr || stream == cudaStreamPerThread || stream == cudaStreamLegacy) return;
  if (device_count() == 1) return;  // no other device; asking the driver would cost every call
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(cuda_stream, &capture), "cudaStreamIsCapturing");
  // The driver does not tell a stream's device during capture. A graph on the wrong device fails when it is launched.
  if (capture != cudaStreamCaptureStatusNone) return;
  int device = 0;
  check(cudaStreamGetDevice(cuda_stream, &device), "cudaStreamGetDevice");
  if (device != site.device) {
    refuse(site, {.argument = "stream",
                  .problem = "the stream belongs to another device",
                  .got = "a stream of cuda:" + std::to_string(device),
                  .wanted = "a stream"});
  }
}

}  // namespace fovea::cuda
