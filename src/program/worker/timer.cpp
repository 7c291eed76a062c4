// The three timers.
#include "program/worker/timer.h"

#include <chrono>

#include "cuda/measure/call_timer.h"
#include "cuda/measure/stream_timer.h"

namespace fovea::program {
namespace {

class HostTimer final : public WorkerTimer {
 public:
  const char* name() const override { return "steady_clock"; }
  Samples sample(const std::function<void()>& run, const std::function<void()>&, int runs, int lead) override {
    for (int i = 0; i < lead; ++i) run();
    Samples samples;
    for (int i = 0; i < runs; ++i) {
      const auto start = std::chrono::steady_clock::now();
      run();
      samples.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return samples;
  }
};

class DeviceTimer final : public WorkerTimer {
 public:
  explicit DeviceTimer(cuda::Timing timing) : timing_(timing), timer_(timing) {}
  const char* name() const override { return timer_.name(); }
  void* stream() const override { return timer_.stream(); }
  bool may_allocate() const override { return timing_ != cuda::Timing::graph; }
  Samples sample(const std::function<void()>& run, const std::function<void()>&, int runs, int lead) override {
    auto [seconds, host_bound, state] = timer_.sample(run, runs, lead);
    return {std::move(seconds), {}, {}, std::move(host_bound), state.clock_mhz, state.power_w};
  }

 private:
  cuda::Timing timing_;
  cuda::StreamTimer timer_;
};

// Times calls with a caller's workspace, and the same calls without it.
class DeviceCallTimer final : public WorkerTimer {
 public:
  explicit DeviceCallTimer(bool with_launches) : timer_(with_launches) {}
  const char* name() const override { return cuda::CallTimer::kName; }
  void* stream() const override { return timer_.stream(); }
  bool may_allocate() const override { return false; }
  Samples sample(const std::function<void()>& run, const std::function<void()>& pooled, int runs, int lead) override {
    auto [seconds, launches, with_pool] = timer_.sample(run, pooled, runs, lead);
    return {std::move(seconds), std::move(launches), std::move(with_pool), {}, {}, {}};
  }

 private:
  cuda::CallTimer timer_;
};

}  // namespace

std::unique_ptr<WorkerTimer> make_timer(DeviceKind device, const std::string& timing, bool ours) {
  if (device == DeviceKind::cpu) return std::make_unique<HostTimer>();
  if (timing == "host") return std::make_unique<DeviceCallTimer>(ours);
  return std::make_unique<DeviceTimer>(timing == "graph"   ? cuda::Timing::graph
                                       : timing == "eager" ? cuda::Timing::eager
                                       : timing == "hot"   ? cuda::Timing::hot
                                                           : cuda::Timing::cold);
}

}  // namespace fovea::program
