// How a worker times its runs: by the host's clock, or by events on a GPU's stream.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::program {

class WorkerTimer {
 public:
  struct Samples {
    std::vector<double> seconds;
    std::optional<double> clock_mhz, power_w;  // of a GPU
  };

  virtual ~WorkerTimer() = default;
  virtual const char* name() const = 0;
  virtual void* stream() const { return nullptr; }  // that runs are enqueued on; null: the host runs them
  virtual bool captures() const { return false; }   // runs are captured in a graph, so they must not allocate
  // `lead` untimed runs, then `runs` timed ones.
  virtual Samples sample(const std::function<void()>& run, int runs, int lead) = 0;
};

// `timing` is cold, hot or graph, of a GPU alone.
std::unique_ptr<WorkerTimer> make_timer(DeviceKind device, const std::string& timing);

}  // namespace fovea::program
