// Events, which are made once and used for all steps.
#include "cuda/measure/stream_marks.h"

#include <deque>

#include "cuda/measure/event.h"

namespace fovea::cuda {

struct StreamMarks::Impl {
  std::deque<Event> events;
  std::size_t marks = 0;  // of the events, those that were recorded
};

StreamMarks::StreamMarks() : impl_(std::make_unique<Impl>()) {}
StreamMarks::~StreamMarks() = default;
StreamMarks::StreamMarks(StreamMarks&&) noexcept = default;
StreamMarks& StreamMarks::operator=(StreamMarks&&) noexcept = default;

void StreamMarks::mark() {
  if (impl_->marks == impl_->events.size()) impl_->events.emplace_back();
  impl_->events[impl_->marks].record(nullptr);
  ++impl_->marks;
}

std::vector<double> StreamMarks::take() {
  std::vector<double> seconds;
  if (impl_->marks == 0) return seconds;
  impl_->events[impl_->marks - 1].wait();
  for (std::size_t i = 0; i < impl_->marks; ++i)
    seconds.push_back(impl_->events[i].seconds_since(impl_->events.front()));
  impl_->marks = 0;
  return seconds;
}

}  // namespace fovea::cuda
