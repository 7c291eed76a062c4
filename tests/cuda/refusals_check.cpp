// Bad input that only a GPU can be given, and the verdicts on random descriptors, which must be the CPU's.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/random_descriptors.h"
#include "attention/scale.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "device_call.h"
#include "fovea/attention.h"
#include "fovea/error.h"
#include "on_device.h"
#include "refusal_verdicts.h"
#include "verification/attention/case.h"

namespace fovea::cuda {
namespace {

using namespace refusals;

DeviceCall small_call() { return DeviceCall(case_of("pass=bwd b=1 hq=2 hkv=1 lq=512 d=64 dtype=bf16 mask=causal")); }

void pointers_and_devices() {
  DeviceCall call = small_call();
  std::vector<float> host(1 << 17);
  const ForwardTensors forward = call.forward;
  const BackwardTensors backward = call.backward;
  const auto run_forward = [&call] { attention_forward(call.forward, call.options); };
  const auto run_backward = [&call] { attention_backward(call.backward, call.options); };
  call.forward.q.data = call.backward.dout.data = host.data();
  expect_refused("host pointer, forward", call, {"q", "host memory"}, run_forward);
  expect_refused("host pointer, backward", call, {"dout", "host memory"}, run_backward);
  call.forward = forward, call.backward = backward;
  call.forward.out.data = host.data(), call.backward.dk.data = host.data();
  expect_refused("host pointer for out", call, {"out", "host memory"}, run_forward);
  expect_refused("host pointer for dk", call, {"dk", "host memory"}, run_backward);
  call.forward = forward, call.backward = backward;
  std::vector<std::byte> memory(
      static_cast<std::size_t>(workspace_bytes(describe(backward, call.options), "cuda.any")) + 64);
  void* aligned = memory.data();
  std::size_t room = memory.size();
  std::align(64, room - 64, aligned, room);
  call.options.workspace = {aligned, static_cast<std::int64_t>(room)};
  expect_refused("host pointer for the workspace", call, {"workspace", "host memory"}, run_backward);
  call.options.workspace = {};
  call.forward.saved = call.backward.saved = {aligned, static_cast<std::int64_t>(room)};
  expect_refused("host pointer for the saved state, forward", call, {"saved", "host memory"}, run_forward);
  expect_refused("host pointer for the saved state, backward", call, {"saved", "host memory"}, run_backward);
  call.forward = forward, call.backward = backward;
  call.forward.k.device.index = call.backward.lse.device.index = 1;
  expect_refused("tensors on different devices, forward", call, {"k", "different devices"}, run_forward);
  expect_refused("tensors on different devices, backward", call, {"lse", "different devices"}, run_backward);
  call.forward = forward;
  for (TensorView* t : {&call.forward.q, &call.forward.k, &call.forward.v}) t->device.index = 63;
  call.forward.out.device.index = call.forward.lse.device.index = 63;
  expect_refused("a device that is not there", call, {"no such device", "cuda:63"}, run_forward);
  call.forward = forward;
  call.forward.v.data = static_cast<const std::byte*>(forward.v.data) + 1;
  expect_refused("a pointer between elements", call, {"v", "aligned"}, run_forward);
}

// Pointers aligned to their elements only take a slower path to the same bits.
void misaligned_pointers() {
  for (const char* line : {"pass=bwd b=1 hq=2 hkv=1 lq=200 d=64 dtype=bf16 mask=causal",
                           "pass=bwd b=1 hq=2 hkv=1 lq=200 d=64 dtype=fp32 mask=causal"}) {
    std::vector<std::vector<std::byte>> answers[2];
    for (const int moved : {0, 1}) {
      const verification::AttentionCase c = case_of(line);
      DeviceCall call(c);
      const std::int64_t step = moved * size_of(c.problem.dtype);
      const auto move = [step](auto& view) {
        using Byte =
            std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>, const std::byte, std::byte>;
        auto* const from = static_cast<Byte*>(view.data);
        const auto bytes = static_cast<std::size_t>(view.buffer_bytes);
        std::vector<std::byte> values(bytes);
        check(cudaMemcpy(values.data(), from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
        view.data = from + step;
        check(cudaMemcpy(const_cast<void*>(static_cast<const void*>(view.data)), values.data(), bytes,
                         cudaMemcpyHostToDevice),
              "cudaMemcpy");
      };
      move(call.forward.q), move(call.forward.k), move(call.forward.v), move(call.forward.out),
          move(call.backward.dout);
      move(call.backward.dq), move(call.backward.dk), move(call.backward.dv);
      call.backward.q = call.forward.q, call.backward.k = call.forward.k, call.backward.v = call.forward.v;
      call.backward.out = call.forward.out;
      attention_forward(call.forward, call.options);
      attention_backward(call.backward, call.options);
      for (const MutableTensorView& t :
           {call.forward.out, call.forward.lse, call.backward.dq, call.backward.dk, call.backward.dv}) {
        auto& answer = answers[moved].emplace_back(static_cast<std::size_t>(t.buffer_bytes));
        check(cudaMemcpy(answer.data(), t.data, answer.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
      }
    }
    judge(std::string("misaligned pointers, ") + line, answers[0] == answers[1] ? "" : "give other bits");
  }
}

void streams_and_capture() {
  DeviceCall call = small_call();
  attention_forward(call.forward, call.options);
  attention_backward(call.backward, call.options);
  const auto eager = call.bytes();
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  call.options.stream = stream;
  const std::int64_t bytes = workspace_bytes(describe(call.backward, call.options), "cuda.any");
  const DeviceMemory workspace(bytes);
  for (const bool own_workspace : {true, false}) {
    call.options.workspace = own_workspace ? Buffer{} : Buffer{workspace.data(), bytes};
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    attention_backward(call.backward, call.options);
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (int replay = 0; replay < 3; ++replay) {
      call.poison(Pass::backward);
      check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
      check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      judge(own_workspace ? "a graph that holds the workspace" : "a graph", call.bytes() == eager ? "" : "other bits");
    }
    cudaGraphExecDestroy(executable), cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(stream);

  call.options.stream = nullptr;
  call.options.workspace = {workspace.data(), 64};
  expect_refused("workspace too small", call, {"workspace", "too small", std::to_string(bytes)},
                 [&call] { attention_backward(call.backward, call.options); });
}

// Needs a second GPU; where there is none, no check is counted.
void two_devices() {
  if (device_count() < 2) return;
  DeviceCall call = small_call();
  cudaStream_t stream = nullptr;
  void* elsewhere = nullptr;
  {
    const CurrentDevice second(1);
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaMalloc(&elsewhere, static_cast<std::size_t>(call.forward.q.buffer_bytes)), "cudaMalloc");
  }
  call.options.stream = stream;
  expect_refused("stream of another device, forward", call, {"stream", "another device"},
                 [&call] { attention_forward(call.forward, call.options); });
  expect_refused("stream of another device, backward", call, {"stream", "another device"},
                 [&call] { attention_backward(call.backward, call.options); });
  call.options.stream = nullptr;
  call.forward.q.data = elsewhere;
  expect_refused("memory of another device", call, {"q", "another device"},
                 [&call] { attention_forward(call.forward, call.options); });
  cudaFree(elsewhere), cudaStreamDestroy(stream);
}

struct Judgement {
  bool accepted = true;
  Status status{};
  std::string argument, problem, got, wanted, hint;
  bool operator==(const Judgement&) const = default;
};

// Devices by their part in the call, its own or the other: all that the words of CPU and GPU may differ in.
std::string by_part(std::string text, DeviceKind own) {
  const auto rename = [&text](std::string_view device, std::string_view part) {
    for (auto at = text.find(device); at != std::string::npos; at = text.find(device, at + part.size()))
      text.replace(at, device.size(), part);
  };
  rename("cpu:0", own == DeviceKind::cpu ? "its device" : "the other device");
  rename("cuda:0", own == DeviceKind::cuda ? "its device" : "the other device");
  return text;
}

Judgement judgement_on(const Descriptor& descriptor, DeviceKind own) {
  try {
    descriptor.call();
    return {};
  } catch (const Error& error) {
    const ErrorDetails& said = error.details();
    return {false,
            error.status(),
            said.argument,
            by_part(said.problem, own),
            by_part(said.got, own),
            by_part(said.wanted, own),
            by_part(said.hint, own)};
  }
}

std::string text_of(const Judgement& j) {
  if (j.accepted) return "accepted";
  return "refused, " + j.argument + ": " + j.problem + ", got " + j.got + ", wanted " + j.wanted + "; " + j.hint;
}

// Empty, or what is wrong with the GPU's verdict. The reference takes scales that kernels do not take.
std::string wrong_verdict(const Judgement& got, const Judgement& wanted, const AttentionOptions& options) {
  const std::string reason = attention::scale_refusal(options.scale.value_or(1.0));
  if (wanted.accepted && !reason.empty())
    return got.status == Status::unsupported && got.got == "cuda.any: " + reason ? "" : text_of(got);
  return wanted == got ? "" : text_of(got) + "; the CPU: " + text_of(wanted);
}

// Each descriptor on the CPU's reference and on the GPU: the same verdict in the same words, no fault, and no byte
// written by a refused call.
void descriptors(int count) {
  constexpr std::size_t kAll = kDescriptorSlots * static_cast<std::size_t>(kDescriptorBytes);
  const auto slots = [](std::byte* memory) {
    return [memory](std::size_t slot) { return memory + slot * static_cast<std::size_t>(kDescriptorBytes); };
  };
  auto* const host = static_cast<std::byte*>(std::aligned_alloc(256, kAll));
  std::fill_n(host, kAll, std::byte{0x3c});
  DeviceMemory device(static_cast<std::int64_t>(kAll));
  device.upload(host);
  std::vector<std::byte> before(kAll), after(kAll);
  device.download(before.data());
  for (int n = 0; n < count; ++n) {
    Descriptor on_host = draw_descriptor(n, {{DeviceKind::cpu, 0}, slots(host)});
    Descriptor on_device = draw_descriptor(n, {{DeviceKind::cuda, 0}, slots(device.data())});
    on_host.options.implementation = "reference";
    on_device.options.implementation = "cuda.any";
    const Judgement wanted = judgement_on(on_host, DeviceKind::cpu), got = judgement_on(on_device, DeviceKind::cuda);
    device.download(after.data());
    std::string wrong = wrong_verdict(got, wanted, on_device.options);
    if (!got.accepted && before != after) wrong += "; wrote before it refused";
    judge("descriptor " + std::to_string(n), wrong);
    before.swap(after);
  }
  std::free(host);
}

}  // namespace

int check_refusals(int count) {
  passed = failed = 0;
  pointers_and_devices();
  misaligned_pointers();
  streams_and_capture();
  two_devices();
  descriptors(count);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::printf("refusals: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
