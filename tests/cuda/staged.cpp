// Copies in, the call, copies out.
#include "staged.h"

#include <cuda_runtime_api.h>

#include "cuda/any/plan.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "fovea/attention.h"

namespace fovea::cuda::staged {
namespace {

const auto kStream = cudaStreamPerThread;

// Elements from the first to one past the last.
std::int64_t extent(const TensorView& t) {
  std::int64_t last = 0;
  for (int i = 0; i < 4; ++i) {
    if (t.sizes[i] == 0) return 0;
    if (t.sizes[i] > 1) last += (t.sizes[i] - 1) * t.strides[i];
  }
  return last + 1;
}

AttentionProblem on_device(AttentionProblem problem) {
  problem.device = {DeviceKind::cuda, 0};
  return problem;
}

// Device memory full of NaN, so that whatever is read before it is written shows.
class PoisonedWorkspace {
 public:
  explicit PoisonedWorkspace(std::int64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    check(cudaMallocAsync(&data_, static_cast<std::size_t>(bytes), kStream), "cudaMallocAsync");
    check(cudaMemsetAsync(data_, 0xff, static_cast<std::size_t>(bytes), kStream), "cudaMemsetAsync");
  }
  ~PoisonedWorkspace() {
    if (data_ != nullptr) cudaFreeAsync(data_, kStream);
  }
  PoisonedWorkspace(const PoisonedWorkspace&) = delete;
  PoisonedWorkspace& operator=(const PoisonedWorkspace&) = delete;
  Buffer buffer() const { return {data_, data_ == nullptr ? 0 : bytes_}; }

 private:
  std::int64_t bytes_;
  void* data_ = nullptr;
};

AttentionOptions options_for(const AttentionProblem& problem, const PoisonedWorkspace& workspace) {
  AttentionOptions options;
  options.mask = problem.mask;
  options.scale = problem.scale;
  options.implementation = "cuda.any";
  options.stream = kStream;
  options.workspace = workspace.buffer();
  return options;
}

core::Plan plan(const AttentionProblem& problem) {
  (void)problem;
  return {.tiles = "on the device"};
}

std::string refusal(const AttentionProblem& problem) { return any::refusal(on_device(problem)); }

void forward(const AttentionProblem& problem, const ForwardTensors& t, const core::RunContext&) {
  const DeviceTensor q(t.q), k(t.k), v(t.v), out(t.out), lse(t.lse);
  const PoisonedWorkspace workspace(workspace_bytes(on_device(problem), "cuda.any"));
  attention_forward({.q = q.view(), .k = k.view(), .v = v.view(), .out = out.view(), .lse = lse.view()},
                    options_for(problem, workspace));
  out.download(t.out.data);
  lse.download(t.lse.data);
}

void backward(const AttentionProblem& problem, const BackwardTensors& t, const core::RunContext&) {
  const DeviceTensor q(t.q), k(t.k), v(t.v), out(t.out), lse(t.lse), dout(t.dout), delta(t.delta);
  const DeviceTensor dq(t.dq), dk(t.dk), dv(t.dv);
  const PoisonedWorkspace workspace(workspace_bytes(on_device(problem), "cuda.any"));
  attention_backward({.q = q.view(),
                      .k = k.view(),
                      .v = v.view(),
                      .out = out.view(),
                      .lse = lse.view(),
                      .dout = dout.view(),
                      .delta = delta.view(),
                      .dq = dq.view(),
                      .dk = dk.view(),
                      .dv = dv.view(),
                      .accumulate = t.accumulate},
                     options_for(problem, workspace));
  dq.download(t.dq.data);
  dk.download(t.dk.data);
  dv.download(t.dv.data);
}

}  // namespace

DeviceTensor::DeviceTensor(const TensorView& host) {
  view_ = {nullptr, host.dtype, host.sizes, host.strides, {DeviceKind::cuda, 0}};
  if (!host) return;
  bytes_ = extent(host) * size_of(host.dtype);
  const auto shift = reinterpret_cast<std::uintptr_t>(host.data) % 256;
  check(cudaMallocAsync(&memory_, static_cast<std::size_t>(bytes_) + 512, kStream), "cudaMallocAsync");
  view_.data = static_cast<char*>(memory_) + shift;
  check(cudaMemcpyAsync(view_.data, host.data, static_cast<std::size_t>(bytes_), cudaMemcpyHostToDevice, kStream),
        "cudaMemcpyAsync");
}

DeviceTensor::~DeviceTensor() {
  if (memory_ != nullptr) cudaFreeAsync(memory_, kStream);
}

void DeviceTensor::download(void* host) const {
  if (memory_ == nullptr || bytes_ == 0) return;
  check(cudaMemcpyAsync(host, view_.data, static_cast<std::size_t>(bytes_), cudaMemcpyDeviceToHost, kStream),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(kStream), "cudaStreamSynchronize");
}

const core::Implementation& any() {
  static constexpr core::Implementation staged{.name = "staged.cuda.any",
                                               .device = DeviceKind::cpu,
                                               .automatic = false,
                                               .unavailable = unavailable,
                                               .refusal = refusal,
                                               .plan = plan,
                                               .forward = forward,
                                               .backward = backward};
  return staged;
}

}  // namespace fovea::cuda::staged
