// A part ends when the next one of its phase begins, or the phase ends. A CPU's are timed by the host, a GPU's by
// events.
#include "program/profile/phases.h"

#include <utility>

#include "cuda/measure/nvtx_ranges.h"
#include "model/optimizer.h"

namespace fovea::program {

Phases::Phases(model::Model& model, const model::Batch& batch, std::string passes, int threads, double learning_rate)
    : model_(model),
      batch_(batch),
      passes_(std::move(passes)),
      context_{.threads = threads},
      learning_rate_(learning_rate) {
  if (!times_parts_alone()) watch_parts();
}

Phases::~Phases() { model_.watch_parts({}); }

void Phases::watch_parts() {
  is_watching_ = true;
  if (times_parts_alone()) marks_.emplace();
  model_.watch_parts([this](const model::PassPart& part) { begin_part(part); });
}

void Phases::step() {
  spent_.clear();
  step_parts_.clear();
  step_spans_.clear();
  begin_phase("forward");
  model_.forward(batch_, has_backward() ? 1.0 : 0.0, context_);
  end_phase();
  if (has_backward()) {
    begin_phase("backward");
    model_.backward(batch_, context_);
    end_phase();
  }
  if (passes_ == "step") {
    begin_phase("optimizer");
    if (is_watching_) begin_part({.name = "clip and AdamW", .bytes = model::update_bytes(model_)});
    model::update(model_, {}, learning_rate_, steps_++, context_);
    end_phase();
  }
}

double Phases::products() {
  const auto begin = Clock::now();
  model_.run_products(Pass::forward, context_);
  if (has_backward()) model_.run_products(Pass::backward, context_);
  model_.wait(context_);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void Phases::keep_phases() {
  for (const auto& [phase, seconds] : spent_) samples_[phase].push_back(seconds);
}

void Phases::keep_parts(const std::function<void(Span)>& on_span) {
  ++steps_with_parts_;
  for (Span& span : step_spans_) {
    if (on_span) on_span(std::move(span));
  }
  for (const auto& [name, part] : step_parts_) {
    PartTimes& sum = parts_[name];
    sum.calls = part.calls, sum.flops = part.flops, sum.bytes = part.bytes;
    sum.seconds += part.seconds;
  }
}

std::map<std::string, PartTimes> Phases::parts() const {
  std::map<std::string, PartTimes> means = parts_;
  for (auto& [name, part] : means) part.seconds /= static_cast<double>(steps_with_parts_);
  return means;
}

void Phases::begin_phase(const std::string& phase) {
  if (watch_) watch_({phase, false});
  begin_range(phase);
  phase_ = phase;
  phase_begin_ = Clock::now();
}

void Phases::end_phase() {
  if (marks_) marks_->mark();
  model_.wait(context_);
  close_part();
  const auto now = Clock::now();
  spent_[phase_] = std::chrono::duration<double>(now - phase_begin_).count();
  if (marks_) take_marked_parts();
  keep_span(phase_, phase_begin_, now);
  end_range();
  if (watch_) watch_({phase_, true});
}

void Phases::begin_part(const model::PassPart& part) {
  close_part();
  if (marks_) marks_->mark();
  open_parts_.push_back({std::string(part.name), part.flops, part.bytes});
  begin_range(open_parts_.back().name);
  part_begin_ = Clock::now();
}

void Phases::close_part() {
  if (open_parts_.empty()) return;
  end_range();
  if (marks_) return;
  keep_part(open_parts_.back(), part_begin_, Clock::now());
  open_parts_.clear();
}

// Marks are from the first one on, which the device reached a little after the host began the phase.
void Phases::take_marked_parts() {
  const std::vector<double> at = marks_->take();
  const auto when = [this](double seconds) {
    return phase_begin_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  for (std::size_t i = 0; i < open_parts_.size(); ++i) keep_part(open_parts_[i], when(at[i]), when(at[i + 1]));
  open_parts_.clear();
}

void Phases::keep_part(const OpenPart& part, Clock::time_point begin, Clock::time_point end) {
  PartTimes& times = step_parts_[phase_ + "." + part.name];
  ++times.calls;
  times.seconds += std::chrono::duration<double>(end - begin).count();
  times.flops += part.flops, times.bytes += part.bytes;
  keep_span(part.name, begin, end);
}

void Phases::keep_span(const std::string& name, Clock::time_point begin, Clock::time_point end) {
  const std::chrono::duration<double> since = begin.time_since_epoch(), lasted = end - begin;
  step_spans_.push_back({passes_, name, since.count(), lasted.count()});
}

void Phases::begin_range(const std::string& name) const {
  if (model_.device().kind == DeviceKind::cuda) cuda::begin_range(name.c_str());
}

void Phases::end_range() const {
  if (model_.device().kind == DeviceKind::cuda) cuda::end_range();
}

}  // namespace fovea::program
