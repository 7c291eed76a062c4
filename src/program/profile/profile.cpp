// One model for all passes; its memory is planned before it is made. Peers make their steps in turns with it.
#include "program/profile/profile.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <optional>

#include "core/binary_size.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/random.h"
#include "fovea/error.h"
#include "model/optimizer.h"
#include "model/problem_line.h"
#include "program/interrupt.h"
#include "program/machine/machine.h"
#include "program/profile/model_peer.h"
#include "verification/model/operation.h"

namespace fovea::program {
namespace {

using Clock = std::chrono::steady_clock;

ProfileRow planned_row(const ProfiledModel& model, const ProfileSettings& s) {
  const model::Extent extent{s.batch, s.context};
  model::check(model.config, extent, "profile");
  const model::ParameterMap map(model.config);
  const model::MemoryPlan plan(model.config, extent, map, model::Calls(model.config, extent, s.device));
  return {
      .model = model.name + (model.config.checkpoints_activations ? "+checkpointed" : ""),
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
  Phases(model::Model& model, const model::Batch& batch, std::string passes, int threads)
      : model_(model), batch_(batch), passes_(std::move(passes)), context_{.threads = threads} {
    if (!times_parts_alone()) watch_parts();
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

  double backward_flops() const { return has_backward() ? model_.backward_flops() : 0; }

  void step() {
    spent_.clear();
    step_parts_.clear();
    step_spans_.clear();
    phase_begin_ = part_begin_ = Clock::now();
    phase_ = "forward";
    model_.forward(batch_, has_backward() ? 1.0 : 0.0, context_);
    end_phase();
    if (has_backward()) {
      phase_ = "backward";
      model_.backward(batch_, context_);
      end_phase();
    }
    if (passes_ == "step") {
      phase_ = "optimizer";
      model::update(model_, {}, kProfileLearningRate, steps_++, context_);
      tell("clip and AdamW");
      end_phase();
    }
  }

  // The products of a step alone.
  double products() {
    const auto begin = Clock::now();
    model_.run_products(Pass::forward, context_);
    if (has_backward()) model_.run_products(Pass::backward, context_);
    model_.wait(context_);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  // Keep what the last step took.
  void keep_phases() {
    for (const auto& [phase, seconds] : spent_) samples_[phase].push_back(seconds);
  }
  void keep_products(double seconds) { product_samples_.push_back(seconds); }
  void keep_parts(const std::function<void(Span)>& on_span) {
    ++steps_with_parts_;
    for (Span& span : step_spans_) {
      if (on_span) on_span(std::move(span));
    }
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

  const PhaseSeconds& seconds() const { return samples_; }
  const std::vector<double>& product_seconds() const { return product_samples_; }

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
    keep_span(phase_, phase_begin_, now);
    phase_begin_ = part_begin_ = now;
  }

  void end_part(const model::PassPart& part) {
    model_.wait(context_);
    const auto now = Clock::now();
    PartTimes& times = step_parts_[phase_ + "." + std::string(part.name)];
    ++times.calls;
    times.seconds += std::chrono::duration<double>(now - part_begin_).count();
    times.flops += part.flops;
    keep_span(std::string(part.name), part_begin_, now);
    part_begin_ = now;
  }

  void keep_span(const std::string& name, Clock::time_point begin, Clock::time_point end) {
    const std::chrono::duration<double> since = begin.time_since_epoch(), lasted = end - begin;
    step_spans_.push_back({passes_, name, since.count(), lasted.count()});
  }

  model::Model& model_;
  model::Batch batch_;
  std::string passes_;
  core::RunContext context_;
  std::int64_t steps_ = 0, steps_with_parts_ = 0;
  bool is_watching_ = false;
  std::string phase_;
  Clock::time_point phase_begin_, part_begin_;
  std::map<std::string, double> spent_;  // of this step
  std::map<std::string, PartTimes> step_parts_;
  std::vector<Span> step_spans_;  // their track is the kind of step
  PhaseSeconds samples_;          // of all measured steps
  std::vector<double> product_samples_;
  std::map<std::string, PartTimes> parts_;
};

// Tokens, then targets, at random.
std::vector<std::int32_t> random_tokens(const model::Config& config, std::int64_t rows) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < 2 * rows; ++i) {
    const std::uint32_t random = core::philox(1, 0, static_cast<std::uint64_t>(i))[0];
    tokens.push_back(static_cast<std::int32_t>(random % static_cast<std::uint32_t>(config.vocabulary)));
  }
  return tokens;
}

// Steps of this library and of the peers take turns, so that the machine's speed is the same for all. Returns false if
// it was stopped.
bool measure(Phases& phases, std::list<ModelPeer>& peers, const std::string& passes, const ProfileSettings& s) {
  const bool alone = phases.times_parts_alone();
  ProfileStep step{passes, 0, s.warm_up + (alone ? 2 : 1) * s.steps};
  const auto tell = [&] {
    ++step.made;
    if (s.on_step) s.on_step(step);
  };
  for (ModelPeer& peer : peers) peer.begin_pass();
  for (std::int64_t i = 0; i < s.warm_up + s.steps; ++i) {
    if (s.stops && s.stops()) return false;
    phases.step();
    const double products = phases.products();
    for (ModelPeer& peer : peers) peer.step(passes, i >= s.warm_up);
    tell();
    if (i < s.warm_up) continue;
    phases.keep_phases();
    phases.keep_products(products);
    if (!alone) phases.keep_parts(s.on_span);
  }
  if (alone) phases.watch_parts();
  for (std::int64_t i = 0; alone && i < s.steps; ++i) {
    if (s.stops && s.stops()) return false;
    phases.step();
    phases.keep_parts(s.on_span);
    tell();
  }
  return true;
}

// Why the model cannot be made; empty once it is there.
std::string no_room(std::optional<model::Model>& model, const ProfiledModel& profiled, const ProfileRow& planned,
                    const ProfileSettings& s) {
  if (planned.planned_bytes > s.free_bytes)
    return "planned " + core::binary_size(planned.planned_bytes) + ", free " + core::binary_size(s.free_bytes);
  try {
    if (model) return {};
    model.emplace(profiled.config, model::Extent{s.batch, s.context}, 0, s.device);
    if (s.on_model) s.on_model(*model);
    return {};
  } catch (const Error& error) {  // others may have taken memory meanwhile
    if (error.status() != Status::out_of_memory) throw;
    return "planned " + core::binary_size(planned.planned_bytes) + ", " + error.details().got;
  }
}

// Before a peer is started its need is estimated, and afterwards measured: moments, and what activations need, are not
// there before the first steps, so what is free then tells too little.
void add_peers(std::list<ModelPeer>& peers, model::Model& model, const model::Batch& batch, const ProfileRow& planned,
               const ProfileSettings& s) {
  const std::int64_t estimated = peer_bytes(model.config(), model.extent());
  std::int64_t wanted = planned.planned_bytes;
  for (const ProfilePeer& peer : s.peers) {
    ModelPeer& one = peers.emplace_back(peer, s);
    if (wanted + estimated > s.free_bytes) {
      one.leave_out(wanted + estimated, s.free_bytes);
      continue;
    }
    one.compare(model, batch, {.threads = s.threads});
    if (one.failed()) continue;
    const std::int64_t with_it = wanted + std::max(estimated, one.measured_bytes());
    if (with_it > s.free_bytes) {
      one.leave_out(with_it, s.free_bytes);
    } else {
      wanted = with_it;
    }
  }
}

}  // namespace

verification::Case problem_of(const ProfiledModel& model, const ProfileSettings& s) {
  verification::Case c = with_word(verification::Case(verification::model_operation()), "pass", "step");
  model::set_model(c.values, model.name, model.config, {s.batch, s.context}, s.device.kind);
  return c;
}

bool profile(const ProfiledModel& profiled, const ProfileSettings& s,
             const std::function<void(ProfileResult)>& done) try {
  const ProfileRow planned = planned_row(profiled, s);
  const verification::Case problem = problem_of(profiled, s);
  const std::vector<std::int32_t> tokens = random_tokens(profiled.config, s.batch * s.context);
  const std::span<const std::int32_t> all(tokens);
  const model::Batch batch{all.first(tokens.size() / 2), all.last(tokens.size() / 2)};
  std::optional<model::Model> model;
  std::list<ModelPeer> peers;
  for (const std::string& passes : s.passes) {
    if (s.on_step) s.on_step({.passes = passes});
    ProfileResult result{.row = planned, .problem = problem};
    result.row.passes = passes;
    result.reason = result.row.reason = no_room(model, profiled, planned, s);
    if (!result.reason.empty()) {
      result.status = result.row.status = "oom";
      done(std::move(result));
      continue;
    }
    if (peers.empty()) add_peers(peers, *model, batch, planned, s);
    core::reset_memory_peak();
    Phases phases(*model, batch, passes, s.threads);
    if (!measure(phases, peers, passes, s)) return false;
    result.seconds = phases.seconds();
    if (const std::vector<double>& products = phases.product_seconds(); !products.empty())
      result.row.products_s = statistics_of(products).median;
    result.row.parts = phases.parts();
    if (s.device.kind == DeviceKind::cpu) result.row.measured_bytes = core::memory_count().peak;
    result.forward_flops = model->forward_flops();
    result.backward_flops = phases.backward_flops();
    result.row.flops = result.forward_flops + result.backward_flops;
    result.state_bytes = planned.state_bytes;
    result.held_bytes = planned.state_bytes + planned.activation_bytes;
    result.more_bytes = planned.planned_bytes - *result.held_bytes;
    done(result);
    for (const ModelPeer& peer : peers) done(peer.result(result));
  }
  return true;
} catch (const Interrupted&) {
  return false;
}

}  // namespace fovea::program
