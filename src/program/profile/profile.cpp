// One model for all passes; its memory is planned before it is made. Peers make their steps in turns with it.
#include "program/profile/profile.h"

#include <algorithm>
#include <list>
#include <optional>
#include <vector>

#include "model/problem_line.h"
#include "program/interrupt.h"
#include "program/profile/clock_and_power.h"
#include "program/profile/model_check.h"
#include "program/profile/model_memory.h"
#include "program/profile/model_peer.h"
#include "program/profile/phases.h"
#include "verification/model/operation.h"

namespace fovea::program {
namespace {

using Gauges = std::vector<ClockAndPower>;  // of this library, then of each peer

// Steps of this library and of the peers take turns, so that the machine's speed is the same for all. Returns false if
// it was stopped.
bool measure(Phases& phases, std::list<ModelPeer>& peers, const std::string& passes, const ProfileSettings& s,
             Gauges& gauges) {
  const bool alone = phases.times_parts_alone();
  ProfileStep step{passes, 0, s.warm_up + (alone ? 2 : 1) * s.steps};
  const auto tell = [&] {
    ++step.made;
    if (s.on_step) s.on_step(step);
  };
  for (ModelPeer& peer : peers) peer.begin_pass();
  for (std::int64_t i = 0; i < s.warm_up + s.steps; ++i) {
    if (s.stops && s.stops()) return false;
    const bool is_measured = i >= s.warm_up;
    auto gauge = gauges.begin();
    const auto in_turn = [&gauge, is_measured](const auto& make_step) {
      if (is_measured) gauge->begin();
      make_step();
      if (is_measured) gauge->end();
      ++gauge;
    };
    in_turn([&] { phases.step(); });
    const double products = phases.products();
    for (ModelPeer& peer : peers) in_turn([&] { peer.step(passes, is_measured); });
    tell();
    if (!is_measured) continue;
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

// Whether the model may be timed: it is then there. Its check takes memory too, so it comes before. Throws Interrupted.
ModelVerdict make_model(std::optional<model::Model>& model, const ProfiledModel& profiled, const ProfileRow& planned,
                        const ProfileSettings& s) {
  ModelVerdict verdict;
  if (planned.planned_bytes <= s.free_bytes) {
    if (s.on_check) s.on_check();
    verdict = check_model(profiled.config, s);
  }
  if (verdict.status != "ok") return verdict;
  verdict.reason = no_room(model, profiled, planned, s);
  if (!verdict.reason.empty()) verdict.status = "oom";
  return verdict;
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
  std::vector<std::int32_t> tokens;  // once the model is there: a batch beyond the memory is a row too
  MemoryMeter meter(s.device.kind);
  std::optional<model::Model> model;
  const ModelVerdict verdict = make_model(model, profiled, planned, s);
  std::vector<ProfileResult> results;
  const auto tell_begin = [&s](const std::string& passes) {
    if (s.on_step) s.on_step({.passes = passes});
  };
  tell_begin(s.passes.front());
  for (const std::string& passes : s.passes) {
    if (s.stops && s.stops()) return false;
    ProfileResult& result = results.emplace_back(ProfileResult{.row = planned, .problem = problem});
    result.row.passes = passes;
    result.row.flops = 0;
    result.status = result.row.status = verdict.status;
    result.reason = result.row.reason = verdict.reason;
    result.error = verdict.error, result.checked = verdict.compared;
    if (result.status == "ok") {  // before peers take memory of the same GPU
      if (tokens.empty()) tokens = random_tokens(profiled.config, s.batch * s.context);
      measure_memory(*model, batch_of(tokens), meter, result.row);
    }
  }
  const model::Batch batch = batch_of(tokens);
  std::list<ModelPeer> peers;
  EnergyCounter energy;
  for (ProfileResult& result : results) {
    if (&result != &results.front()) tell_begin(result.row.passes);
    if (result.status != "ok") {
      done(result);
      continue;
    }
    if (peers.empty()) add_peers(peers, *model, batch, planned, s);
    Phases phases(*model, batch, result.row.passes, s.threads);
    Gauges gauges(1 + peers.size(), ClockAndPower(s.device.kind, energy));
    if (!measure(phases, peers, result.row.passes, s, gauges)) return false;
    result.seconds = phases.seconds();
    if (const std::vector<double>& products = phases.product_seconds(); !products.empty())
      result.row.products_s = statistics_of(products).median;
    result.row.parts = phases.parts();
    result.forward_flops = model->forward_flops();
    result.backward_flops = phases.backward_flops();
    result.row.flops = result.forward_flops + result.backward_flops;
    result.state_bytes = planned.state_bytes;
    result.held_bytes = planned.state_bytes + planned.activation_bytes;
    result.more_bytes = planned.planned_bytes - *result.held_bytes;
    auto gauge = gauges.begin();
    const auto tell = [&done, &gauge](ProfileResult one) {
      one.clock_mhz = gauge->clock_mhz(), one.power_w = gauge->power_w();
      ++gauge;
      done(std::move(one));
    };
    tell(result);
    for (const ModelPeer& peer : peers) tell(peer.result(result));
  }
  return true;
} catch (const Interrupted&) {
  return false;
}

}  // namespace fovea::program
