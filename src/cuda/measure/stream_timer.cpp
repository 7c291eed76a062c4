// Events round every run. The write that empties the L2 cache also keeps the device busy while the host enqueues the
// run that follows, so that no launch is waited for inside the timed stretch.
#include "cuda/measure/stream_timer.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cuda/measure/captured_graph.h"
#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"

namespace fovea::cuda {
namespace {

constexpr std::int64_t kFlushBytes = std::int64_t{512} << 20;  // 130 us on an H200, and beyond twice any L2
constexpr double kMostWrites = 16;
constexpr double kHostMargin = 2.0;  // a busy host takes up to half as long again as a quiet one
constexpr int kGraphRuns = 100;
constexpr double kGraphSeconds = 2e-3;

using Clock = std::chrono::steady_clock;

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  double seconds_since(const Event& start) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Stretch {
  Event start, end;
};

}  // namespace

struct StreamTimer::Parts {
  explicit Parts(Timing the_timing) : timing(the_timing), flushed(kFlushBytes) {
    check(cudaStreamCreate(&stream), "cudaStreamCreate");
    if (timing != Timing::graph) write_seconds = time_once([this] { write(); });
  }
  ~Parts() {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
    cudaStreamDestroy(stream);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  void write() {
    check(cudaMemsetAsync(flushed.data(), 0, static_cast<std::size_t>(kFlushBytes), stream), "cudaMemsetAsync");
  }
  // Empties the L2 cache, and keeps the device busy until the host has enqueued what is timed.
  void flush() {
    const double writes = std::clamp(std::ceil(kHostMargin * enqueue_seconds / write_seconds), 1.0, kMostWrites);
    for (int i = 0; i < static_cast<int>(writes); ++i) write();
  }
  void wait() { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

  double time_once(const std::function<void()>& enqueue) {
    Stretch stretch;
    enqueue();
    stretch.start.record(stream);
    enqueue();
    stretch.end.record(stream);
    wait();
    return stretch.end.seconds_since(stretch.start);
  }

  void capture(const std::function<void()>& enqueue) {
    graph_runs = std::clamp(static_cast<int>(kGraphSeconds / std::max(time_once(enqueue), 1e-9)), 1, kGraphRuns);
    const CapturedGraph captured(stream, enqueue, graph_runs);
    check(cudaGraphInstantiate(&graph, captured.get(), 0), "cudaGraphInstantiate");
  }

  // What is timed; hot runs and graphs bring their own first run.
  void run(const std::function<void()>& enqueue, Stretch& stretch) {
    if (timing != Timing::graph) flush();
    const auto begun = Clock::now();
    if (timing == Timing::hot) enqueue();
    stretch.start.record(stream);
    if (timing == Timing::graph) {
      check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
    } else {
      enqueue();
    }
    stretch.end.record(stream);
    const double enqueued = std::chrono::duration<double>(Clock::now() - begun).count();
    enqueue_seconds = enqueue_seconds > 0 ? std::min(enqueue_seconds, enqueued) : enqueued;
  }

  Timing timing;
  DeviceMemory flushed;
  cudaStream_t stream = nullptr;
  cudaGraphExec_t graph = nullptr;
  int graph_runs = 1;
  double write_seconds = 0, enqueue_seconds = 0;  // of one write; the least that a run kept the host so far
};

StreamTimer::StreamTimer(Timing timing) : parts_(std::make_unique<Parts>(timing)) {}

StreamTimer::~StreamTimer() = default;

const char* StreamTimer::name() const {
  constexpr const char* kNames[] = {"cuda_events", "cuda_events_hot", "cuda_graph"};
  return kNames[static_cast<std::size_t>(parts_->timing)];
}

void* StreamTimer::stream() const { return parts_->stream; }

StreamTimer::Samples StreamTimer::sample(const std::function<void()>& enqueue, int runs, int lead) {
  Parts& parts = *parts_;
  if (parts.timing == Timing::graph && parts.graph == nullptr) parts.capture(enqueue);
  std::vector<Stretch> stretches(static_cast<std::size_t>(lead + runs));
  for (Stretch& stretch : stretches) parts.run(enqueue, stretch);
  Samples samples{{}, device_state()};
  parts.wait();
  for (auto stretch = stretches.begin() + lead; stretch != stretches.end(); ++stretch)
    samples.seconds.push_back(stretch->end.seconds_since(stretch->start) / parts.graph_runs);
  return samples;
}

}  // namespace fovea::cuda
