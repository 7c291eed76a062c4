// Events around every run. The write that empties the L2 cache also keeps the device busy while the host enqueues the
// run, so that the device never waits for the host between the two events. If the device starts a run before all of it
// is enqueued, the run is repeated after twice as many writes.
#include "cuda/measure/stream_timer.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/measure/captured_graph.h"
#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"

namespace fovea::cuda {
namespace {

constexpr std::int64_t kFlushBytes = std::int64_t{512} << 20;  // more than twice any L2 cache; takes 130 us on an H200
constexpr int kMostWrites = 16;
constexpr int kGraphRuns = 100;
constexpr double kGraphSeconds = 2e-3;

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  bool reached() const {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) return false;
    check(error, "cudaEventQuery");
    return true;
  }
  double seconds_since(const Event& start) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct EventPair {
  Event start, end;
};

}  // namespace

struct StreamTimer::Impl {
  explicit Impl(Timing the_timing) : timing(the_timing), flushed(kFlushBytes) {
    check(cudaStreamCreate(&stream), "cudaStreamCreate");
  }
  ~Impl() {
    cudaStreamSynchronize(stream);  // what failed half-way may have left work behind
    if (graph != nullptr) cudaGraphExecDestroy(graph);
    cudaStreamDestroy(stream);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void write() {
    check(cudaMemsetAsync(flushed.data(), 0, static_cast<std::size_t>(kFlushBytes), stream), "cudaMemsetAsync");
  }
  void wait() { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

  double time_once(const std::function<void()>& enqueue) {
    EventPair pair;
    enqueue();
    pair.start.record(stream);
    enqueue();
    pair.end.record(stream);
    wait();
    return pair.end.seconds_since(pair.start);
  }

  void capture(const std::function<void()>& enqueue) {
    graph_runs = std::clamp(static_cast<int>(kGraphSeconds / std::max(time_once(enqueue), 1e-9)), 1, kGraphRuns);
    const CapturedGraph captured(stream, enqueue, graph_runs);
    check(cudaGraphInstantiate(&graph, captured.get(), 0), "cudaGraphInstantiate");
  }

  // Enqueues one timed run, which in hot timing follows an untimed one. Returns whether the device started it before
  // the host had enqueued all of it, even after the largest number of writes.
  bool run(const std::function<void()>& enqueue, EventPair& pair) {
    if (timing == Timing::graph) {
      pair.start.record(stream);
      check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
      pair.end.record(stream);
      return false;
    }
    for (;; writes *= 2) {
      for (int i = 0; i < writes; ++i) write();
      if (timing == Timing::hot) enqueue();
      pair.start.record(stream);
      enqueue();
      pair.end.record(stream);
      const bool early = pair.start.reached();
      if (!early || writes == kMostWrites) return early;
    }
  }

  Timing timing;
  DeviceMemory flushed;
  cudaStream_t stream = nullptr;
  cudaGraphExec_t graph = nullptr;
  int graph_runs = 1;
  int writes = 1;  // a power of two
};

StreamTimer::StreamTimer(Timing timing) : impl_(std::make_unique<Impl>(timing)) {}

StreamTimer::~StreamTimer() = default;

const char* StreamTimer::name() const {
  constexpr const char* kNames[] = {"cuda_events", "cuda_events_hot", "cuda_graph"};
  return kNames[static_cast<std::size_t>(impl_->timing)];
}

void* StreamTimer::stream() const { return impl_->stream; }

StreamTimer::Samples StreamTimer::sample(const std::function<void()>& enqueue, int runs, int untimed_runs) {
  Impl& impl = *impl_;
  if (impl.timing == Timing::graph && impl.graph == nullptr) impl.capture(enqueue);
  impl.writes = std::max(1, impl.writes / 2);  // whatever slowed the host may be over
  std::vector<EventPair> pairs(static_cast<std::size_t>(untimed_runs + runs));
  Samples samples;
  for (EventPair& pair : pairs) samples.host_bound.push_back(impl.run(enqueue, pair));
  samples.state = device_state();
  impl.wait();
  samples.host_bound.erase(samples.host_bound.begin(), samples.host_bound.begin() + untimed_runs);
  for (auto pair = pairs.begin() + untimed_runs; pair != pairs.end(); ++pair)
    samples.seconds.push_back(pair->end.seconds_since(pair->start) / impl.graph_runs);
  return samples;
}

}  // namespace fovea::cuda
