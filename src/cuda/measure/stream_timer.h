// Times what is enqueued on a stream, by the device's own clock.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cuda/measure/device_facts.h"

namespace fovea::cuda {

enum class Timing : std::uint8_t {
  cold,  // the L2 cache is overwritten before every run
  hot,   // every run follows one of the same
  graph  // a graph of up to 100 runs, each waiting for the one before: the time of one of them
};

class StreamTimer {
 public:
  explicit StreamTimer(Timing timing);
  ~StreamTimer();
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  const char* name() const;  // cuda_events, cuda_events_hot, cuda_graph
  // A cudaStream_t that the legacy default stream waits for, and it for that one: kernels that know no stream are timed
  // as well.
  void* stream() const;

  struct Samples {
    std::vector<double> seconds;
    std::vector<bool> host_bound;  // which of them may hold the host's time: it enqueued the run too slowly
    DeviceState state;             // while the runs were under way
  };
  // `enqueue` puts one run on the stream and returns. `lead` runs come first, untimed.
  Samples sample(const std::function<void()>& enqueue, int runs, int lead);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace fovea::cuda
