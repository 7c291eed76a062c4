// The timers of a worker: the host's clock, or events on a GPU's stream.
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
    std::vector<double> launches;              // seconds of the kernels' launches alone, with timing=host, if known
    std::vector<double> pooled;                // with them: seconds of calls with a workspace from the library's pool
    std::vector<bool> host_bound;              // on a GPU: which samples may include the host's time to enqueue them
    std::optional<double> clock_mhz, power_w;  // of a GPU
  };

  virtual ~WorkerTimer() = default;
  virtual const char* name() const = 0;
  virtual void* stream() const { return nullptr; }    // runs are enqueued on it; null: the host runs them
  virtual bool may_allocate() const { return true; }  // false: runs may be captured in a graph
  // Makes `lead` untimed runs, then `runs` timed ones. `pooled` is the same run with a workspace from the library's
  // pool; empty if there is none. Only timing=host uses it.
  virtual Samples sample(const std::function<void()>& run, const std::function<void()>& pooled, int runs, int lead) = 0;
};

// `timing` matters only on a GPU: cold, hot, graph, eager or host. `ours`: all kernels that runs launch are this program's.
std::unique_ptr<WorkerTimer> make_timer(DeviceKind device, const std::string& timing, bool ours);

}  // namespace fovea::program
