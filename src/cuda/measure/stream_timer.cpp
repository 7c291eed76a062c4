// Events around every run. The write that empties the L2 cache also keeps the device busy while the host enqueues the
// run, so that the device never waits for the host between the two events. If the device starts a run before all of it
// is enqueued, the run is repeated after twice as many writes.
#include "cuda/measure/stream_timer.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>

#include "cuda/measure/captured_graph.h"
#include "cuda/measure/device_memory.h"
#include "cuda/measure/event.h"
#include "cuda/runtime/check.h"

namespace fovea::cuda {
namespace {

constexpr std::int64_t kFlushBytes = std::int64_t{512} << 20;  // more than twice any L2 cache; takes 130 us on an H200
constexpr int kMostWrites = 16;
constexpr std::chrono::milliseconds kSettling{100};

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

  void choose_runs_in_a_row(const std::function<void()>& enqueue) {
    in_a_row = std::clamp(static_cast<int>(kSecondsInARow / std::max(time_once(enqueue), 1e-9)), 1, kMostInARow);
    if (timing == Timing::eager) return;
    const CapturedGraph captured(stream, enqueue, in_a_row);
    check(cudaGraphInstantiate(&graph, captured.get(), 0), "cudaGraphInstantiate");
  }

  // Untimed calls in a row: two stretches are always enqueued, so that the chip gets as warm as timed calls make it. A
  // wait for each call would let it rest, and its clock would be higher.
  void settle(const std::function<void()>& enqueue) {
    const auto settled = std::chrono::steady_clock::now() + kSettling;
    Event ends[2];
    for (std::size_t stretch = 0; std::chrono::steady_clock::now() < settled; ++stretch) {
      Event& end = ends[stretch % 2];
      if (stretch >= 2) end.wait();
      for (int i = 0; i < in_a_row; ++i) enqueue();
      end.record(stream);
    }
  }

  // Enqueues one timed run, which in hot timing follows an untimed one. Returns whether the device started it before
  // the host had enqueued all of it, even after the largest number of writes.
  bool run(const std::function<void()>& enqueue, EventPair& pair) {
    if (in_a_row > 0) {
      pair.start.record(stream);
      if (timing == Timing::graph) check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
      for (int i = 0; timing == Timing::eager && i < in_a_row; ++i) enqueue();
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
  int in_a_row = 0;  // runs between two events, with graph and eager
  int writes = 1;    // a power of two
};

StreamTimer::StreamTimer(Timing timing) : impl_(std::make_unique<Impl>(timing)) {}

StreamTimer::~StreamTimer() = default;

const char* StreamTimer::name() const {
  constexpr const char* kNames[] = {"cuda_events", "cuda_events_hot", "cuda_graph", "cuda_eager"};
  return kNames[static_cast<std::size_t>(impl_->timing)];
}

void* StreamTimer::stream() const { return impl_->stream; }

StreamTimer::Samples StreamTimer::sample(const std::function<void()>& enqueue, int runs, int untimed_runs) {
  Impl& impl = *impl_;
  if (impl.timing >= Timing::graph && impl.in_a_row == 0) impl.choose_runs_in_a_row(enqueue);
  if (impl.timing == Timing::eager) impl.settle(enqueue);
  impl.writes = std::max(1, impl.writes / 2);  // whatever slowed the host may be over
  std::vector<EventPair> pairs(static_cast<std::size_t>(untimed_runs + runs));
  Samples samples;
  for (EventPair& pair : pairs) samples.host_bound.push_back(impl.run(enqueue, pair));
  samples.state = device_state();
  impl.wait();
  samples.host_bound.erase(samples.host_bound.begin(), samples.host_bound.begin() + untimed_runs);
  for (auto pair = pairs.begin() + untimed_runs; pair != pairs.end(); ++pair)
    samples.seconds.push_back(pair->end.seconds_since(pair->start) / std::max(1, impl.in_a_row));
  return samples;
}

}  // namespace fovea::cuda
