// Times how long calls keep the host that makes them, by the host's clock.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace fovea::cuda {

class CallTimer {
 public:
  // `with_launches`: the kernels that a call launches are this program's own, and are timed without the call as well.
  explicit CallTimer(bool with_launches);
  ~CallTimer();
  CallTimer(const CallTimer&) = delete;
  CallTimer& operator=(const CallTimer&) = delete;

  static constexpr const char* kName = "cuda_host";
  void* stream() const;  // a cudaStream_t that calls enqueue on

  struct Samples {
    std::vector<double> seconds;   // of a call
    std::vector<double> launches;  // of its launches alone; empty where they cannot be told from the call
    std::vector<double> pooled;    // beside them, of the call with a workspace of the library's pool
  };
  // Every sample is the mean of many calls in a row on a device that has nothing else to do. A few untimed calls come
  // right before, and a tenth of a second of them before the first sample. `lead` samples come first, and are dropped.
  // `pooled` may be empty.
  Samples sample(const std::function<void()>& call, const std::function<void()>& pooled, int runs, int lead);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace fovea::cuda
