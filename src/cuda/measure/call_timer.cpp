// Calls in a row until the device is drained again; in between the same for their launches alone.
#include "cuda/measure/call_timer.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <optional>

#include "cuda/measure/captured_graph.h"
#include "cuda/runtime/check.h"
#include "fovea/error.h"

namespace fovea::cuda {
namespace {

// Few enough for the kernels of all of them to find room in the queue of a stream: a full one makes the host wait.
constexpr int kCalls = 32;
constexpr int kLeadingCalls = 4;  // untimed: after waiting for the device, caches and predictions are another's
// After a pause calls take up to half as long again for some 70 ms (seen on an H200).
constexpr double kSettlingSeconds = 0.1;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// By asking again and again: after a wait in cudaDeviceSynchronize as well calls take longer.
void wait_for(cudaStream_t stream) {
  cudaError_t status = cudaErrorNotReady;
  while (status == cudaErrorNotReady) status = cudaStreamQuery(stream);
  check(status, "cudaStreamQuery");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // whatever somebody's kernel enqueued elsewhere
}

double seconds_of(cudaStream_t stream, const std::function<void()>& call) {
  wait_for(stream);
  for (int i = 0; i < kLeadingCalls; ++i) call();
  const auto start = Clock::now();
  for (int i = 0; i < kCalls; ++i) call();
  return seconds_since(start) / kCalls;
}

}  // namespace

struct CallTimer::Parts {
  explicit Parts(bool asked) : with_launches(asked) { check(cudaStreamCreate(&stream), "cudaStreamCreate"); }
  ~Parts() {
    cudaStreamSynchronize(stream);  // what failed half-way may have left work behind
    cudaStreamDestroy(stream);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // Kernels of other libraries among them can be captured, but not launched from here: nothing is known then.
  void find_launches(const std::function<void()>& call) {
    with_launches = false;
    try {
      launches.emplace(CapturedGraph(stream, call, 1));
      launches->enqueue(stream);
    } catch (const Error&) {
      launches.reset();
    }
  }

  bool with_launches;
  cudaStream_t stream = nullptr;
  std::optional<LaunchList> launches;
};

CallTimer::CallTimer(bool with_launches) : parts_(std::make_unique<Parts>(with_launches)) {}

CallTimer::~CallTimer() = default;

void* CallTimer::stream() const { return parts_->stream; }

CallTimer::Samples CallTimer::sample(const std::function<void()>& call, const std::function<void()>& pooled, int runs,
                                     int lead) {
  Parts& parts = *parts_;
  if (parts.with_launches) parts.find_launches(call);
  for (const auto start = Clock::now(); seconds_since(start) < kSettlingSeconds;) seconds_of(parts.stream, call);
  Samples samples;
  for (int i = 0; i < lead + runs; ++i) {
    const auto take = [&](std::vector<double>& all, const std::function<void()>& what) {
      const double seconds = seconds_of(parts.stream, what);
      if (i >= lead) all.push_back(seconds);
    };
    take(samples.seconds, call);
    if (pooled && parts.launches) take(samples.pooled, pooled);
    if (parts.launches) take(samples.launches, [&parts] { parts.launches->enqueue(parts.stream); });
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return samples;
}

}  // namespace fovea::cuda
