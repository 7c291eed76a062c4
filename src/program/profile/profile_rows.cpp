// Times of phases as rows of the record, which every reader of records understands.
#include <algorithm>
#include <functional>
#include <string_view>

#include "program/bench/sampler.h"
#include "program/profile/profile.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

struct TimedPass {
  const char* pass;  // of the problem line
  std::vector<std::string> phases;
};

std::vector<TimedPass> timed_passes(const std::string& passes) {
  if (passes == "forward") return {{"fwd", {"forward"}}};
  if (passes == "forward+backward") return {{"bwd", {"backward"}}, {"e2e", {"forward", "backward"}}};
  return {{"step_fwd", {"forward"}},
          {"step_rest", {"backward", "optimizer"}},
          {"step", {"forward", "backward", "optimizer"}}};
}

}  // namespace

std::vector<double> total_of(const PhaseSeconds& seconds, const std::vector<std::string>& phases) {
  std::vector<double> total;
  for (const std::string& phase : phases) {
    const auto found = seconds.find(phase);
    if (found == seconds.end()) continue;
    total.resize(std::max(total.size(), found->second.size()));
    std::ranges::transform(found->second, total, total.begin(), std::plus{});
  }
  return total;
}

std::vector<Row> rows_of(const ProfileResult& result, const Environment& environment, double rate) {
  std::vector<Row> rows;
  for (const TimedPass& timed : timed_passes(result.row.passes)) {
    Row& row = rows.emplace_back();
    row.problem = verification::line_of(with_word(result.problem, "pass", timed.pass));
    row.impl = result.impl;
    row.status = result.status;
    row.reason = result.reason;
    for (const std::string& phase : timed.phases)
      row.flops += phase == "forward" ? result.forward_flops : phase == "backward" ? result.backward_flops : 0;
    if (timed.pass == std::string_view("bwd") || timed.pass == std::string_view("step")) {
      row.memory_before_forward_bytes = result.state_bytes;
      row.memory_before_backward_bytes = result.held_bytes;
      row.workspace_bytes = result.more_bytes;
    }
    row.error = result.error;
    row.threads = result.row.threads;
    row.source = environment.source;
    row.timer = "steady_clock";
    row.machine = environment.machine;
    row.clock_mhz = result.clock_mhz;
    row.power_w = result.power_w;
    row.peer = result.peer;
    if (result.status != "ok") continue;
    row.time_s = statistics_of(total_of(result.seconds, timed.phases));
    for (const std::string& phase : timed.phases) {
      const auto found = result.seconds.find(phase);
      if (found != result.seconds.end()) row.phases[phase] = statistics_of(found->second);
    }
    const TimeStatistics& t = *row.time_s;
    if (t.q3 - t.q1 > kNoisySpread * t.median) row.flags.emplace_back("noisy");
    row.tflops = row.flops / t.median / 1e12;
    if (rate > 0) row.ceiling_share = row.flops / t.median / rate;
  }
  return rows;
}

}  // namespace fovea::program
