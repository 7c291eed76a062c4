// Makes steps of a model, and times their phases (forward, backward, optimizer) and the parts of each phase.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cuda/measure/stream_marks.h"
#include "model/model.h"
#include "program/profile/profile.h"
#include "program/profile/trace.h"

namespace fovea::program {

class Phases {
 public:
  // `passes` is one of kPasses. With a learning rate of 0 a step computes all it always does and changes no weight.
  Phases(model::Model& model, const model::Batch& batch, std::string passes, int threads,
         double learning_rate = kProfileLearningRate);
  ~Phases();
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;

  // Whether parts are timed in steps of their own: on a GPU, where events between them would take time of a step.
  bool times_parts_alone() const { return model_.device().kind != DeviceKind::cpu; }
  void watch_parts();

  // Told outside of the measured time, as each phase begins and when its work has ended.
  struct Moment {
    std::string phase;
    bool has_ended;
  };
  void watch_phases(std::function<void(const Moment&)> watch) { watch_ = std::move(watch); }

  void step();
  double products();  // seconds of the products of a step alone

  // Keep the times of the last step.
  void keep_phases();
  void keep_products(double seconds) { product_samples_.push_back(seconds); }
  void keep_parts(const std::function<void(Span)>& on_span);

  double backward_flops() const { return has_backward() ? model_.backward_flops() : 0; }
  const PhaseSeconds& seconds() const { return samples_; }
  const std::vector<double>& product_seconds() const { return product_samples_; }
  std::map<std::string, PartTimes> parts() const;  // means of a step

 private:
  using Clock = std::chrono::steady_clock;
  struct OpenPart {  // has begun, and is not timed yet
    std::string name;
    double flops, bytes;
  };

  bool has_backward() const { return passes_ != "forward"; }
  void begin_phase(const std::string& phase);
  void end_phase();
  void begin_part(const model::PassPart& part);
  void close_part();  // on a GPU its time is known once the phase has ended
  void take_marked_parts();
  void keep_part(const OpenPart& part, Clock::time_point begin, Clock::time_point end);
  void keep_span(const std::string& name, Clock::time_point begin, Clock::time_point end);
  void begin_range(const std::string& name) const;  // for tools that watch a GPU
  void end_range() const;

  model::Model& model_;
  model::Batch batch_;
  std::string passes_;
  core::RunContext context_;
  double learning_rate_;
  std::function<void(const Moment&)> watch_;
  std::int64_t steps_ = 0, steps_with_parts_ = 0;
  bool is_watching_ = false;
  std::string phase_;
  std::vector<OpenPart> open_parts_;  // on a CPU at most one, on a GPU all of the phase, with a mark before each
  std::optional<cuda::StreamMarks> marks_;
  Clock::time_point phase_begin_, part_begin_;
  std::map<std::string, double> spent_;  // of this step
  std::map<std::string, PartTimes> step_parts_;
  std::vector<Span> step_spans_;  // their track is the kind of step
  PhaseSeconds samples_;          // of all measured steps
  std::vector<double> product_samples_;
  std::map<std::string, PartTimes> parts_;
};

}  // namespace fovea::program
