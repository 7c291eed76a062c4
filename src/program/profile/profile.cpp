// One model for all passes; its memory is planned before it is made.
#include "program/profile/profile.h"

#include <chrono>
#include <map>
#include <optional>

#include "core/names.h"
#include "core/random.h"
#include "fovea/error.h"
#include "model/optimizer.h"
#include "program/machine/machine.h"

namespace fovea::program {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLearningRate = 3e-4;

ProfileRow planned_row(const ProfiledModel& model, const ProfileSettings& s) {
  const model::Extent extent{s.batch, s.context};
  model::check(model.config, extent, "profile");
  const model::ParameterMap map(model.config);
  const model::MemoryPlan plan(model.config, extent, map, model::Calls(model.config, extent, s.device));
  return {
      .model = model.name,
      .sizes = model::line_of(model.config) + (model.config.checkpoints_activations ? " activations=checkpointed" : ""),
      .batch = s.batch,
      .context = s.context,
      .device = std::string(core::name_of(s.device.kind)),
      .status = "ok",
      .parameters = map.count(),
      .state_bytes = plan.state_bytes,
      .activation_bytes = plan.activation_bytes,
      .workspace_bytes = plan.workspace_bytes,
      .planned_bytes = plan.total_bytes,
      .threads = s.threads};
}

// The seconds of each phase of one step after another.
class Phases {
 public:
  Phases(model::Model& model, std::string passes, int threads)
      : model_(model), passes_(std::move(passes)), context_{.threads = threads} {
    if (!times_parts_alone()) watch_parts();
    for (std::int64_t i = 0; i < 2 * model.extent().rows(); ++i) {
      const std::uint32_t random = core::philox(1, 0, static_cast<std::uint64_t>(i))[0];
      tokens_.push_back(static_cast<std::int32_t>(random % static_cast<std::uint32_t>(model.config().vocabulary)));
    }
  }

  ~Phases() { model_.watch_parts({}); }
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;

  // Whether parts are timed in steps of their own, since the host does not wait for each of them otherwise.
  bool times_parts_alone() const { return model_.device().kind != DeviceKind::cpu; }
  void watch_parts() {
    is_watching_ = true;
    model_.watch_parts([this](const model::PassPart& part) { end_part(part); });
  }

  double flops() const { return model_.forward_flops() + (has_backward() ? model_.backward_flops() : 0); }

  void step() {
    const auto rows = static_cast<std::size_t>(model_.extent().rows());
    const std::span<const std::int32_t> all(tokens_);
    const model::Batch batch{all.first(rows), all.last(rows)};
    spent_.clear();
    step_parts_.clear();
    phase_begin_ = part_begin_ = Clock::now();
    phase_ = "forward";
    model_.forward(batch, has_backward() ? 1.0 : 0.0, context_);
    end_phase();
    if (has_backward()) {
      phase_ = "backward";
      model::clear_gradients(model_, context_);
      tell("clear gradients");
      model_.backward(batch, context_);
      end_phase();
    }
    if (passes_ == "step") {
      phase_ = "optimizer";
      model::update(model_, {}, kLearningRate, steps_++, context_);
      tell("clip and AdamW");
      end_phase();
    }
  }

  // Keep what the last step took.
  void keep_phases() {
    double total = 0;
    for (const auto& [phase, seconds] : spent_) samples_[phase].push_back(seconds), total += seconds;
    samples_["total"].push_back(total);
  }
  void keep_parts() {
    ++steps_with_parts_;
    for (const auto& [name, part] : step_parts_) {
      PartTimes& sum = parts_[name];
      sum.calls = part.calls, sum.flops = part.flops;
      sum.seconds += part.seconds;
    }
  }

  // Means of a step.
  std::map<std::string, PartTimes> parts() const {
    std::map<std::string, PartTimes> means = parts_;
    for (auto& [name, part] : means) part.seconds /= static_cast<double>(steps_with_parts_);
    return means;
  }

  std::map<std::string, TimeStatistics> statistics() const {
    std::map<std::string, TimeStatistics> all;
    for (const auto& [phase, samples] : samples_) all[phase] = statistics_of(samples);
    return all;
  }

 private:
  bool has_backward() const { return passes_ != "forward"; }

  // Of a part beside the model's passes.
  void tell(std::string_view name) {
    if (is_watching_) end_part({name});
  }

  void end_phase() {
    model_.wait(context_);
    const auto now = Clock::now();
    spent_[phase_] = std::chrono::duration<double>(now - phase_begin_).count();
    phase_begin_ = part_begin_ = now;
  }

  void end_part(const model::PassPart& part) {
    model_.wait(context_);
    const auto now = Clock::now();
    PartTimes& times = step_parts_[phase_ + "." + std::string(part.name)];
    ++times.calls;
    times.seconds += std::chrono::duration<double>(now - part_begin_).count();
    times.flops += part.flops;
    part_begin_ = now;
  }

  model::Model& model_;
  std::string passes_;
  core::RunContext context_;
  std::vector<std::int32_t> tokens_;
  std::int64_t steps_ = 0, steps_with_parts_ = 0;
  bool is_watching_ = false;
  std::string phase_;
  Clock::time_point phase_begin_, part_begin_;
  std::map<std::string, double> spent_;  // of this step
  std::map<std::string, PartTimes> step_parts_;
  std::map<std::string, std::vector<double>> samples_;  // of all measured steps
  std::map<std::string, PartTimes> parts_;
};

// Returns false if it was stopped.
bool measure(Phases& phases, const ProfileSettings& s) {
  const bool alone = phases.times_parts_alone();
  for (std::int64_t i = 0; i < s.warm_up + s.steps; ++i) {
    if (s.stops && s.stops()) return false;
    phases.step();
    if (i < s.warm_up) continue;
    phases.keep_phases();
    if (!alone) phases.keep_parts();
  }
  if (alone) phases.watch_parts();
  for (std::int64_t i = 0; alone && i < s.steps; ++i) {
    if (s.stops && s.stops()) return false;
    phases.step();
    phases.keep_parts();
  }
  return true;
}

// Why the model cannot be made; empty once it is there.
std::string no_room(std::optional<model::Model>& model, const ProfiledModel& profiled, const ProfileRow& planned,
                    const ProfileSettings& s) {
  if (planned.planned_bytes > s.free_bytes)
    return "planned " + binary_size(planned.planned_bytes) + ", free " + binary_size(s.free_bytes);
  try {
    if (!model) model.emplace(profiled.config, model::Extent{s.batch, s.context}, 0, s.device);
    return {};
  } catch (const Error& error) {  // others may have taken memory meanwhile
    if (error.status() != Status::out_of_memory) throw;
    return "planned " + binary_size(planned.planned_bytes) + ", " + error.details().got;
  }
}

}  // namespace

bool profile(const ProfiledModel& profiled, const ProfileSettings& s, const std::function<void(ProfileRow)>& done) {
  const ProfileRow planned = planned_row(profiled, s);
  std::optional<model::Model> model;
  for (const std::string& passes : s.passes) {
    ProfileRow row = planned;
    row.passes = passes;
    row.reason = no_room(model, profiled, planned, s);
    if (!row.reason.empty()) {
      row.status = "oom";
      done(std::move(row));
      continue;
    }
    Phases phases(*model, passes, s.threads);
    if (!measure(phases, s)) return false;
    row.times = phases.statistics();
    row.parts = phases.parts();
    row.flops = phases.flops();
    done(std::move(row));
  }
  return true;
}

}  // namespace fovea::program
