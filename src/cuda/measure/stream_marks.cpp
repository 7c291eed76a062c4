// Events, which are made once and used for all steps.
#include "cuda/measure/stream_marks.h"

#include <cuda_runtime_api.h>

#include "cuda/runtime/check.h"

namespace fovea::cuda {

struct StreamMarks::Impl {
  Impl() = default;
  ~Impl() {
    for (const cudaEvent_t event : events) cudaEventDestroy(event);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::vector<cudaEvent_t> events;
  std::size_t marks = 0;  // of the events, those that were recorded
};

StreamMarks::StreamMarks() : impl_(std::make_unique<Impl>()) {}
StreamMarks::~StreamMarks() = default;
StreamMarks::StreamMarks(StreamMarks&&) noexcept = default;
StreamMarks& StreamMarks::operator=(StreamMarks&&) noexcept = default;

void StreamMarks::mark() {
  if (impl_->marks == impl_->events.size()) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cudaEventCreate");
    impl_->events.push_back(event);
  }
  check(cudaEventRecord(impl_->events[impl_->marks], nullptr), "cudaEventRecord");
  ++impl_->marks;
}

std::vector<double> StreamMarks::take() {
  std::vector<double> seconds;
  if (impl_->marks == 0) return seconds;
  check(cudaEventSynchronize(impl_->events[impl_->marks - 1]), "cudaEventSynchronize");
  for (std::size_t i = 0; i < impl_->marks; ++i) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, impl_->events.front(), impl_->events[i]), "cudaEventElapsedTime");
    seconds.push_back(milliseconds * 1e-3);
  }
  impl_->marks = 0;
  return seconds;
}

}  // namespace fovea::cuda
