// Copies in, the call, copies out.
#include "cuda/measure/device_calls.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/check.h"
#include "cuda/runtime/check.h"

namespace fovea::cuda {
namespace {

constexpr std::int64_t kMargin = 256, kPage = 4096;
constexpr std::byte kPoison{0xff};

// Elements from the first to one past the last.
std::int64_t extent(const TensorView& t) {
  std::int64_t last = 0;
  for (int i = 0; i < 4; ++i) {
    if (t.sizes[i] == 0) return 0;
    if (t.sizes[i] > 1) last += (t.sizes[i] - 1) * t.strides[i];
  }
  return last + 1;
}

// A stream for calls that knows no other.
cudaStream_t stream() {
  static const cudaStream_t one = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return made;
  }();
  return one;
}

// A tensor on the device: margin, as many bytes as bring it to the host's alignment, elements, margin.
class Copy {
 public:
  Copy(const TensorView& host, const char* name, bool is_output) : host_(host), name_(name), is_output_(is_output) {
    view_ = {nullptr, host.dtype, host.sizes, host.strides, {DeviceKind::cuda, 0}};
    if (!host) return;
    const auto address = reinterpret_cast<std::uintptr_t>(host.data);
    bytes_ = extent(host) * size_of(host.dtype);
    before_ = kMargin + static_cast<std::int64_t>(address % kMargin);
    after_ = (static_cast<std::int64_t>(address) + bytes_) % kPage == 0 ? 0 : kMargin;
    check(cudaMallocAsync(&memory_, size(), stream()), "cudaMallocAsync");
    check(cudaMemsetAsync(memory_, static_cast<int>(kPoison), size(), stream()), "cudaMemsetAsync");
    view_.data = static_cast<std::byte*>(memory_) + before_;
    view_.buffer_bytes = bytes_;
    check(cudaMemcpyAsync(view_.data, host.data, static_cast<std::size_t>(bytes_), cudaMemcpyHostToDevice, stream()),
          "cudaMemcpyAsync");
  }
  ~Copy() {
    if (memory_ != nullptr) cudaFreeAsync(memory_, stream());
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  const MutableTensorView& view() const { return view_; }

  void bring_back() const {
    if (memory_ == nullptr) return;
    std::vector<std::byte> all(size());
    check(cudaMemcpyAsync(all.data(), memory_, size(), cudaMemcpyDeviceToHost, stream()), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
    const auto begin = all.begin() + before_, end = begin + bytes_;
    const auto poisoned = [](std::byte b) { return b == kPoison; };
    if (!std::all_of(all.begin(), begin, poisoned) || !std::all_of(end, all.end(), poisoned))
      core::fail({.call = "verify", .argument = name_, .problem = "the memory round it was written"});
    const auto bytes = static_cast<std::size_t>(bytes_);
    if (is_output_) {
      std::memcpy(const_cast<void*>(host_.data), &*begin, bytes);
    } else if (bytes > 0 && std::memcmp(host_.data, &*begin, bytes) != 0) {
      core::fail({.call = "verify", .argument = name_, .problem = "an input was changed"});
    }
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(before_ + bytes_ + after_); }

  TensorView host_;
  std::string name_;
  bool is_output_;
  void* memory_ = nullptr;
  std::int64_t before_ = 0, bytes_ = 0, after_ = 0;
  MutableTensorView view_;
};

// Device memory full of NaN, so that whatever is read before it is written shows.
class Scratch {
 public:
  explicit Scratch(const Buffer& host) : bytes_(host.data == nullptr ? 0 : host.bytes) {
    if (bytes_ == 0) return;
    check(cudaMallocAsync(&data_, static_cast<std::size_t>(bytes_), stream()), "cudaMallocAsync");
    check(cudaMemsetAsync(data_, static_cast<int>(kPoison), static_cast<std::size_t>(bytes_), stream()),
          "cudaMemsetAsync");
  }
  ~Scratch() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Buffer buffer() const { return {data_, bytes_}; }

 private:
  std::int64_t bytes_;
  void* data_ = nullptr;
};

AttentionOptions on_device(AttentionOptions options, const Scratch& workspace) {
  options.stream = stream();
  options.workspace = workspace.buffer();
  return options;
}

void wait() {
  check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  check(cudaGetLastError(), "a kernel");
}

// State that forward leaves for backward stays on the device in between; one at a time.
Buffer saved_on_device(const Buffer& host, bool forward) {
  static void* data = nullptr;
  if (host.data == nullptr) return {};
  if (forward) {
    if (data != nullptr) check(cudaFreeAsync(data, stream()), "cudaFreeAsync");
    check(cudaMallocAsync(&data, static_cast<std::size_t>(host.bytes), stream()), "cudaMallocAsync");
  }
  return {data, host.bytes};
}

}  // namespace

bool device_lost() { return cudaDeviceSynchronize() != cudaSuccess; }

void forward_on_device(const ForwardTensors& t, const AttentionOptions& options) {
  const Copy q(t.q, "q", false), k(t.k, "k", false), v(t.v, "v", false), out(t.out, "out", true),
      lse(t.lse, "lse", true);
  const Scratch workspace(options.workspace);
  attention_forward({.q = q.view(),
                     .k = k.view(),
                     .v = v.view(),
                     .out = out.view(),
                     .lse = lse.view(),
                     .saved = saved_on_device(t.saved, true)},
                    on_device(options, workspace));
  wait();
  for (const Copy* one : {&q, &k, &v, &out, &lse}) one->bring_back();
}

void backward_on_device(const BackwardTensors& t, const AttentionOptions& options) {
  const Copy q(t.q, "q", false), k(t.k, "k", false), v(t.v, "v", false), out(t.out, "out", false);
  const Copy lse(t.lse, "lse", false), dout(t.dout, "dout", false), delta(t.delta, "delta", false);
  const Copy dq(t.dq, "dq", true), dk(t.dk, "dk", true), dv(t.dv, "dv", true);
  const Scratch workspace(options.workspace);
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
                      .saved = saved_on_device(t.saved, false),
                      .accumulate = t.accumulate},
                     on_device(options, workspace));
  wait();
  for (const Copy* one : {&q, &k, &v, &out, &lse, &dout, &delta, &dq, &dk, &dv}) one->bring_back();
}

}  // namespace fovea::cuda
