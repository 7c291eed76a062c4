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
    std::vector<double> launches;  // of a GPU's kernels alone, where calls are timed by the host and both are known
    std::vector<double> pooled;    // beside them, of the calls with a workspace of the library's pool
    std::vector<bool> host_bound;  // of a GPU: which may hold the time that the host took to enqueue them
    std::optional<double> clock_mhz, power_w;  // of a GPU
  };

  virtual ~WorkerTimer() = default;
  virtual const char* name() const = 0;
  virtual void* stream() const { return nullptr; }    // that runs are enqueued on; null: the host runs them
  virtual bool may_allocate() const { return true; }  // a run; not where it is captured
  // `lead` untimed runs, then `runs` timed ones. `pooled`: the run with a workspace of the library's pool, where its
  // own is the caller's; empty if there is no such run. Only who times the host makes it.
  virtual Samples sample(const std::function<void()>& run, const std::function<void()>& pooled, int runs, int lead) = 0;
};

// `timing` is cold, hot, graph or host, of a GPU alone. `ours`: what runs launches kernels of this program only, as far
// as it launches any itself.
std::unique_ptr<WorkerTimer> make_timer(DeviceKind device, const std::string& timing, bool ours);

}  // namespace fovea::program
