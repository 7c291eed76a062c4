// Copies to the device, and back together with the poison around the tensors.
#include "cuda/measure/device_tensors.h"

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

// A stream that does not synchronize with the default stream.
cudaStream_t stream() {
  static const cudaStream_t one = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return made;
  }();
  return one;
}

void wait() {
  check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  check(cudaGetLastError(), "a kernel");
}

}  // namespace

// A tensor on the device: a margin, padding up to the host's alignment, the elements, a margin.
class DeviceTensors::Copy {
 public:
  explicit Copy(const HostTensorView& tensor) : host_(tensor.view), name_(tensor.name), is_output_(tensor.is_written) {
    const TensorView& host = host_;
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
      core::fail({.call = "verify", .argument = name_, .problem = "the memory around it was written"});
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

DeviceTensors::DeviceTensors(const std::vector<HostTensorView>& tensors) {
  for (const HostTensorView& one : tensors) copies_.push_back(std::make_unique<Copy>(one));
}

DeviceTensors::~DeviceTensors() = default;

MutableTensorView DeviceTensors::view(std::size_t index) const { return copies_[index]->view(); }

void DeviceTensors::bring_back() const {
  wait();
  for (const auto& one : copies_) one->bring_back();
}

DeviceScratch::DeviceScratch(const Buffer& host) : bytes_(host.data == nullptr ? 0 : host.bytes) {
  if (bytes_ == 0) return;
  const auto bytes = static_cast<std::size_t>(bytes_);
  check(cudaMallocAsync(&data_, bytes, stream()), "cudaMallocAsync");
  check(cudaMemsetAsync(data_, static_cast<int>(kPoison), bytes, stream()), "cudaMemsetAsync");
}

DeviceScratch::~DeviceScratch() {
  if (data_ != nullptr) cudaFreeAsync(data_, stream());
}

Buffer saved_on_device(const Buffer& host, bool forward) {
  static void* data = nullptr;
  if (host.data == nullptr) return {};
  if (forward) {
    if (data != nullptr) check(cudaFreeAsync(data, stream()), "cudaFreeAsync");
    check(cudaMallocAsync(&data, static_cast<std::size_t>(host.bytes), stream()), "cudaMallocAsync");
  }
  return {data, host.bytes};
}

void* checked_stream() { return stream(); }

bool device_lost() { return cudaDeviceSynchronize() != cudaSuccess; }

}  // namespace fovea::cuda
