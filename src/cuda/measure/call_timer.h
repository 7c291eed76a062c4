// Times how long a call occupies the host thread that makes it, by the host's clock.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace fovea::cuda {

class CallTimer {
 public:
  // `with_launches`: a call launches only kernels of this program; these launches are also timed without the call.
  explicit CallTimer(bool with_launches);
  ~CallTimer();
  CallTimer(const CallTimer&) = delete;
  CallTimer& operator=(const CallTimer&) = delete;

  static constexpr const char* kName = "cuda_host";
  void* stream() const;  // a cudaStream_t that calls enqueue on

  struct Samples {
    std::vector<double> seconds;   // of one call
    std::vector<double> launches;  // of its launches alone; empty if they cannot be repeated without the call
    std::vector<double> pooled;    // of one `pooled` call, which takes its workspace from the library's pool
  };
  // Every sample is the mean of many calls in a row on an idle device, after a few untimed ones. Before the first
  // sample calls run untimed for a tenth of a second. The first `untimed_runs` samples are dropped. `pooled` may be
  // empty.
  Samples sample(const std::function<void()>& call, const std::function<void()>& pooled, int runs, int untimed_runs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fovea::cuda
