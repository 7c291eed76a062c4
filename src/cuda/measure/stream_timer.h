// Times what is enqueued on a stream, by the device's own clock.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cuda/measure/device_facts.h"

namespace fovea::cuda {

enum class Timing : std::uint8_t {
  cold,   // the L2 cache is overwritten before every run
  hot,    // every run follows an untimed run of the same call
  graph,  // one run of a graph of up to 100 runs, each waiting for the one before
  eager   // up to 100 runs in a row, which the host enqueues meanwhile: the slower of host and device decides
};

// With graph and eager, a sample is the mean of so many runs that they take about these seconds, at most kMostInARow.
inline constexpr double kSecondsInARow = 2e-3;
inline constexpr int kMostInARow = 100;

class StreamTimer {
 public:
  explicit StreamTimer(Timing timing);
  ~StreamTimer();
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  const char* name() const;  // cuda_events, cuda_events_hot, cuda_graph, cuda_eager
  // A blocking cudaStream_t: it and the legacy default stream wait for each other, so kernels on that stream are timed
  // too.
  void* stream() const;

  struct Samples {
    std::vector<double> seconds;
    std::vector<bool> host_bound;  // whether a sample may include waiting for the host
    DeviceState state;             // while the runs were under way
  };
  // `enqueue` puts one run on the stream and returns. `untimed_runs` runs come first, untimed. With eager timing,
  // runs of a tenth of a second come before them: after a pause the host is slower.
  Samples sample(const std::function<void()>& enqueue, int runs, int untimed_runs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fovea::cuda
