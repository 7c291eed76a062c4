// Enqueues a model's kernels. The sums of a norm's partial sums are a row pass of src/heads.
#include "model/cuda/work.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "core/check.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "heads/cuda/passes.h"
#include "model/cuda/kernels.h"

namespace fovea::model {
namespace {

using core::RunContext;
using cuda::CurrentDevice;

constexpr std::int64_t kMaxGrid = std::numeric_limits<std::int32_t>::max();

std::int64_t divide_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step; }

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

cudaStream_t stream_of(const RunContext& context) { return static_cast<cudaStream_t>(context.stream); }

template <class Parameters>
void enqueue(const void* kernel, std::int64_t ctas, const Parameters& parameters, const RunContext& context,
             int threads = kThreads) {
  cuda::launch(kernel, std::min(ctas, kMaxGrid), threads, 0, stream_of(context), &parameters, cuda::Dependency::full);
}

std::int64_t tiles(std::int64_t rows, std::int64_t columns) { return rows * divide_up(columns, kTileColumns); }

// Columns that a thread reads and writes at once.
template <class... Pointers>
int columns_at_once(std::int64_t columns, Pointers... arrays) {
  const bool aligned = ((reinterpret_cast<std::uintptr_t>(arrays) % 16 == 0) && ...);
  return aligned && columns % 4 == 0 ? 4 : 1;
}

// Whole warps, as many as the columns of a row keep busy.
int norm_threads(std::int64_t columns, int at_once) {
  return static_cast<int>(std::min<std::int64_t>(divide_up(divide_up(columns, at_once), 32) * 32, kThreads));
}

// Memory of a device, and pinned memory of the host with the event of the last copy from there.
class Block {
 public:
  Block(int device, std::int64_t bytes, std::int64_t rows) {
    const CurrentDevice current(device);
    try {
      cuda::check(cudaMalloc(&data, size(bytes)), "cudaMalloc");
      cuda::check(cudaMallocHost(&staged, size(2 * rows) * sizeof(std::int32_t)), "cudaMallocHost");
      cuda::check(cudaEventCreateWithFlags(&sent, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    } catch (...) {
      release();
      throw;
    }
  }
  ~Block() { release(); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void* data = nullptr;
  void* staged = nullptr;
  cudaEvent_t sent = nullptr;

 private:
  // cudaFree waits for the device's work. A failure is not reported: this also runs while an error unwinds.
  void release() {
    if (sent != nullptr) cudaEventDestroy(sent);
    if (staged != nullptr) cudaFreeHost(staged);
    if (data != nullptr) cudaFree(data);
  }
};

class GpuWork final : public DeviceWork {
 public:
  GpuWork(Device device, std::int64_t bytes, std::int64_t rows)
      : device_(device.index), block_(device.index, bytes, rows) {}

  void* memory() const override { return block_.data; }

  void clear(void* to, std::int64_t bytes, const RunContext& context) const override {
    const CurrentDevice current(device_);
    cuda::check(cudaMemsetAsync(to, 0, size(bytes), stream_of(context)), "cudaMemsetAsync");
  }

  void write(void* to, const void* from, std::int64_t bytes, const RunContext& context) const override {
    copy(to, from, bytes, cudaMemcpyHostToDevice, context);
    wait(context);
  }

  void read(void* to, const void* from, std::int64_t bytes, const RunContext& context) const override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost, context);
    wait(context);
  }

  void wait(const RunContext& context) const override {
    const CurrentDevice current(device_);
    cuda::check(cudaStreamSynchronize(stream_of(context)), "cudaStreamSynchronize");
  }

  void send(std::int32_t* to, const Batch& batch, const RunContext& context) override {
    cuda::check(cudaEventSynchronize(block_.sent), "cudaEventSynchronize");
    auto* const staged = static_cast<std::int32_t*>(block_.staged);
    std::ranges::copy(batch.targets, std::ranges::copy(batch.tokens, staged).out);
    copy(to, staged, static_cast<std::int64_t>(batch.tokens.size_bytes() + batch.targets.size_bytes()),
         cudaMemcpyHostToDevice, context);
    const CurrentDevice current(device_);
    cuda::check(cudaEventRecord(block_.sent, stream_of(context)), "cudaEventRecord");
  }

  void rms_norm(const cpu::RmsNormTask& t, const RunContext& context) const override {
    const CurrentDevice current(device_);
    const int at_once = columns_at_once(t.columns, t.x, t.branch, t.sum, t.weight, t.y);
    enqueue(rms_norm_kernel(t.element, at_once), t.rows, t, context, norm_threads(t.columns, at_once));
  }

  void rms_norm_backward(const cpu::RmsNormBackwardTask& t, float* partials, const RunContext& context) const override {
    const CurrentDevice current(device_);
    const int at_once = columns_at_once(t.columns, t.x, t.weight, t.dy, t.dx, t.rounded, partials);
    const std::int64_t ctas = partial_count(DeviceKind::cuda, t.rows, t.columns) / t.columns;
    enqueue(rms_norm_backward_kernel(t.element, at_once), ctas, NormBackwardParameters{t, partials}, context,
            norm_threads(t.columns, at_once));
    const MutableTensorView dweight{
        .data = t.dweight, .dtype = DType::fp32, .sizes = {1, 1, 1, t.columns}, .strides = {0, 0, 0, 1}};
    heads::passes_on_gpu().sum(
        {.partial = partials, .rows = ctas, .dweight = dweight, .accumulate = t.accumulate_dweight}, context);
  }

  void swiglu(const cpu::SwigluTask& t, const RunContext& context) const override {
    const CurrentDevice current(device_);
    const int at_once = columns_at_once(t.columns, t.gate_up, t.out);
    enqueue(swiglu_kernel(t.element, at_once), tiles(t.rows, t.columns), t, context);
  }

  void swiglu_backward(const cpu::SwigluBackwardTask& t, const RunContext& context) const override {
    const CurrentDevice current(device_);
    const int at_once = columns_at_once(t.columns, t.gate_up, t.dout, t.dgate_up);
    enqueue(swiglu_backward_kernel(t.element, at_once), tiles(t.rows, t.columns), t, context);
  }

  void gather(const cpu::GatherTask& t, const RunContext& context) const override {
    const CurrentDevice current(device_);
    enqueue(gather_kernel(), tiles(t.count, t.columns), t, context);
  }

  void scatter(const cpu::ScatterTask& t, const RunContext& context) const override {
    const CurrentDevice current(device_);
    enqueue(scatter_kernel(), t.count, t, context);
  }

  void cross_entropy(const cpu::CrossEntropyTask& t, const RunContext& context) const override {
    const CurrentDevice current(device_);
    enqueue(cross_entropy_kernel(), t.rows, t, context);
  }

  void round(std::uint16_t* to, const float* from, std::int64_t count, const RunContext& context) const override {
    const CurrentDevice current(device_);
    enqueue(round_kernel(), divide_up(count, kTileColumns), RoundParameters{from, to, count}, context);
  }

  void update(const Update& u, const RunContext& context) const override {
    const CurrentDevice current(device_);
    const auto count = static_cast<std::int64_t>(u.gradients.size());
    const std::int64_t sums = square_sum_count(DeviceKind::cuda, count);
    enqueue(square_sums_kernel(), sums, SquareSumParameters{u.gradients.data(), count, u.square_sums}, context);
    enqueue(clip_kernel(), 1, ClipParameters{u.square_sums, sums, u.largest_norm, u.clipping}, context);
    for (const cpu::AdamWTask& task : u.tasks)
      enqueue(adamw_kernel(), divide_up(task.count, kTileColumns), AdamWParameters{task, u.clipping}, context);
  }

 private:
  void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind, const RunContext& context) const {
    const CurrentDevice current(device_);
    cuda::check(cudaMemcpyAsync(to, from, size(bytes), kind, stream_of(context)), "cudaMemcpyAsync");
  }

  int device_;
  Block block_;
};

}  // namespace

std::unique_ptr<DeviceWork> work_on_gpu(Device device, std::int64_t bytes, std::int64_t rows) {
  const auto refuse = [](std::string problem, std::string got, std::string wanted) {
    core::fail({.status = Status::unsupported,
                .call = "model",
                .argument = "device",
                .problem = std::move(problem),
                .got = std::move(got),
                .wanted = std::move(wanted)});
  };
  if (const std::string obstacle = cuda::unavailable(); !obstacle.empty())
    refuse("no GPU runs the model", obstacle, "a GPU, or the device cpu");
  if (device.index < 0 || device.index >= cuda::device_count())
    refuse("no such GPU", std::to_string(device.index), "less than " + std::to_string(cuda::device_count()));
  if (rows > kMaxGrid) refuse("more tokens than a grid holds", std::to_string(rows), "at most 2^31 - 1");
  return std::make_unique<GpuWork>(device, bytes, rows);
}

}  // namespace fovea::model
