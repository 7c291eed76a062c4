// A sample times many calls in a row on an idle device; samples of calls and of their launches alone alternate.
#include "cuda/measure/call_timer.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <optional>

#include "cuda/measure/captured_graph.h"
#include "cuda/runtime/check.h"
#include "fovea/error.h"

namespace fovea::cuda {
namespace {

// Few enough that all their kernels fit in the queue of a stream: a full queue makes the host wait.
constexpr int kCalls = 32;
constexpr int kLeadingCalls = 4;  // untimed: they warm caches and branch predictors after the wait
// After a pause, calls take up to 1.5 times as long for some 70 ms (seen on an H200).
constexpr double kSettlingSeconds = 0.1;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Polls: calls take longer after cudaDeviceSynchronize, too.
void wait_for(cudaStream_t stream) {
  cudaError_t status = cudaErrorNotReady;
  while (status == cudaErrorNotReady) status = cudaStreamQuery(stream);
  check(status, "cudaStreamQuery");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // also work on other streams
}

double seconds_of(cudaStream_t stream, const std::function<void()>& call) {
  wait_for(stream);
  for (int i = 0; i < kLeadingCalls; ++i) call();
  const auto start = Clock::now();
  for (int i = 0; i < kCalls; ++i) call();
  return seconds_since(start) / kCalls;
}

}  // namespace

struct CallTimer::Impl {
  explicit Impl(bool with_launches) : must_find_launches(with_launches) {
    check(cudaStreamCreate(&stream), "cudaStreamCreate");
  }
  ~Impl() {
    cudaStreamSynchronize(stream);  // what failed half-way may have left work behind
    cudaStreamDestroy(stream);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Kernels of other libraries can be captured but not launched from here. Then there are no times of launches alone.
  void find_launches(const std::function<void()>& call) {
    must_find_launches = false;
    try {
      launches.emplace(CapturedGraph(stream, call, 1));
      launches->enqueue(stream);
    } catch (const Error&) {
      launches.reset();
    }
  }

  bool must_find_launches;
  cudaStream_t stream = nullptr;
  std::optional<LaunchList> launches;
};

CallTimer::CallTimer(bool with_launches) : impl_(std::make_unique<Impl>(with_launches)) {}

CallTimer::~CallTimer() = default;

void* CallTimer::stream() const { return impl_->stream; }

CallTimer::Samples CallTimer::sample(const std::function<void()>& call, const std::function<void()>& pooled, int runs,
                                     int untimed_runs) {
  Impl& impl = *impl_;
  if (impl.must_find_launches) impl.find_launches(call);
  for (const auto start = Clock::now(); seconds_since(start) < kSettlingSeconds;) seconds_of(impl.stream, call);
  Samples samples;
  for (int i = 0; i < untimed_runs + runs; ++i) {
    const auto take = [&](std::vector<double>& all, const std::function<void()>& what) {
      const double seconds = seconds_of(impl.stream, what);
      if (i >= untimed_runs) all.push_back(seconds);
    };
    take(samples.seconds, call);
    if (pooled && impl.launches) take(samples.pooled, pooled);
    if (impl.launches) take(samples.launches, [&impl] { impl.launches->enqueue(impl.stream); });
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return samples;
}

}  // namespace fovea::cuda
