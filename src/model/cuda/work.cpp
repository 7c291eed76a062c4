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
             int threads = kThreads, cuda::Dependency dependency = cuda::Dependency::full,
             std::int64_t shared_bytes = 0) {
  cuda::launch(kernel, std::min(ctas, kMaxGrid), threads, static_cast<int>(shared_bytes), stream_of(context),
               &parameters, dependency);
}

// Whether a thread can read and write `together` columns of each array at once.
template <class... Pointers>
bool has_vectors(std::int64_t columns, int together, Pointers... arrays) {
  return columns % together == 0 && ((reinterpret_cast<std::uintptr_t>(arrays) % 16 == 0) && ...);
}

// A kernel that takes tiles: whole warps, and no more of them than the columns keep busy.
template <class Parameters>
void enqueue_tiles(const void* kernel, std::int64_t rows, std::int64_t columns, int together,
                   const Parameters& parameters, const RunContext& context) {
  const std::int64_t vectors = columns / together, tiles = divide_up(vectors, kTileThreads);
  const std::int64_t threads = divide_up(divide_up(vectors, tiles), 32) * 32;
  enqueue(kernel, rows * divide_up(vectors, threads), parameters, context, static_cast<int>(threads),
          cuda::Dependency::programmatic);
}

// How norms hold rows of so many columns in registers; no warps: they do not.
struct Held {
  std::int64_t row_warps = 1, warps = 4;  // the latter of a thread block

  Held(std::int64_t columns, bool vectors) {
    while (row_warps * kHeldVectors * 128 < columns) row_warps *= 2;
    warps = std::max(warps, row_warps);
    if (!vectors || warps * 32 > kThreads) row_warps = 0, warps = std::min(divide_up(columns, 32), kThreads / 32L);
  }
  bool is_held() const { return row_warps > 0; }
  int threads() const { return static_cast<int>(warps * 32); }
  // Only the kernels that hold rows call griddepcontrol_wait().
  cuda::Dependency dependency() const { return is_held() ? cuda::Dependency::programmatic : cuda::Dependency::full; }
};

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
    const Held held(t.columns, has_vectors(t.columns, 4, t.x, t.branch, t.sum, t.weight, t.y));
    const std::int64_t rows_at_once = held.is_held() ? held.warps / held.row_warps : 1;
    enqueue(rms_norm_kernel(t.element, held.is_held()), divide_up(t.rows, rows_at_once),
            NormParameters{t, static_cast<unsigned>(held.row_warps)}, context, held.threads(), held.dependency());
  }

  void rms_norm_backward(const cpu::RmsNormBackwardTask& t, float* partials, const RunContext& context) const override {
    const CurrentDevice current(device_);
    const Held held(t.columns, has_vectors(t.columns, 4, t.x, t.weight, t.dy, t.dx, t.rounded));
    const std::int64_t ctas = partial_count(DeviceKind::cuda, t.rows, t.columns) / t.columns;
    enqueue(rms_norm_backward_kernel(t.element, held.is_held()), ctas,
            NormBackwardParameters{t, partials, static_cast<unsigned>(held.row_warps)}, context, held.threads(),
            held.dependency(), held.is_held() ? t.columns * static_cast<std::int64_t>(sizeof(float)) : 0);
    const MutableTensorView dweight{
        .data = t.dweight, .dtype = DType::fp32, .sizes = {1, 1, 1, t.columns}, .strides = {0, 0, 0, 1}};
    heads::passes_on_gpu().sum(
        {.partial = partials, .rows = ctas, .dweight = dweight, .accumulate = t.accumulate_dweight}, context);
  }

  void swiglu(const cpu::SwigluTask& t, const RunContext& context) const override {
    const CurrentDevice current(device_);
    const bool wide = has_vectors(t.columns, wide_columns(t.element), t.gate_up, t.out);
    enqueue_tiles(swiglu_kernel(t.element, wide), t.rows, t.columns, wide ? wide_columns(t.element) : 1, t, context);
  }

  void swiglu_backward(const cpu::SwigluBackwardTask& t, const RunContext& context) const override {
    const CurrentDevice current(device_);
    const bool wide = has_vectors(t.columns, wide_columns(t.element), t.gate_up, t.dout, t.dgate_up, t.out);
    enqueue_tiles(swiglu_backward_kernel(t.element, wide), t.rows, t.columns, wide ? wide_columns(t.element) : 1, t,
                  context);
  }

  void gather(const cpu::GatherTask& t, const RunContext& context) const override {
    const CurrentDevice current(device_);
    const bool wide = has_vectors(t.columns, 4, t.table, t.rows);
    enqueue_tiles(gather_kernel(wide), t.count, t.columns, wide ? 4 : 1, t, context);
  }

  void scatter(const cpu::ScatterTask& t, const RunContext& context) const override {
    const CurrentDevice current(device_);
    enqueue(scatter_kernel(), t.count, t, context);
  }

  void cross_entropy(const cpu::CrossEntropyTask& t, const RunContext& context) const override {
    const CurrentDevice current(device_);
    enqueue(cross_entropy_kernel(has_vectors(t.columns, 4, t.logits), t.columns), t.rows, t, context, kLossThreads,
            cuda::Dependency::programmatic);
  }

  void round(std::uint16_t* to, const float* from, std::int64_t count, const RunContext& context) const override {
    const CurrentDevice current(device_);
    enqueue(round_kernel(), divide_up(count, 4 * kThreads), RoundParameters{from, to, count}, context);
  }

  void update(const Update& u, const RunContext& context) const override {
    const CurrentDevice current(device_);
    const auto count = static_cast<std::int64_t>(u.gradients.size());
    const std::int64_t sums = square_sum_count(DeviceKind::cuda, count);
    enqueue(square_sums_kernel(), sums, SquareSumParameters{u.gradients.data(), count, u.square_sums}, context);
    enqueue(clip_kernel(), 1, ClipParameters{u.square_sums, sums, u.largest_norm, u.clipping}, context);
    for (const cpu::AdamWTask& task : u.tasks)
      enqueue(adamw_kernel(), divide_up(task.count, 4 * kThreads), AdamWParameters{task, u.clipping}, context);
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
