// Times a model's forward, backward and optimizer, each as an interval of its own, and tells what memory they need.
// Peers run the same model in turns with this library.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"
#include "program/profile/trace.h"
#include "program/record/record.h"
#include "verification/case.h"

namespace fovea::program {

inline constexpr const char* kPasses[] = {"forward", "forward+backward", "step"};
inline constexpr const char* kOwnName = "fovea";
inline constexpr double kProfileLearningRate = 3e-4;

struct ProfiledModel {
  std::string name;  // of a preset, or custom
  model::Config config;
};

// Another implementation of the model, in a process of its own.
struct ProfilePeer {
  std::string name;                  // torch.eager
  std::vector<std::string> command;  // starts its worker
};

struct ProfileStep {
  std::string passes;
  std::int64_t made = 0, total = 0;  // with those of warm-up; 0: the passes begin
};

struct ProfileSettings {
  std::int64_t batch = 1, context = 128;
  std::vector<std::string> passes;       // of kPasses
  std::int64_t warm_up = 5, steps = 10;  // of each pass; only `steps` are measured
  std::int64_t free_bytes = 0;           // a plan beyond it is a row with status oom
  Device device;
  int threads = 1;
  std::vector<ProfilePeer> peers = {};
  double timeout = 600;                    // seconds until a peer must answer; its first steps may compile
  std::function<bool()> stops = {};        // asked before each step
  std::function<void(Span)> on_span = {};  // phases and parts of the measured steps of this library
  // Before layers are compared with the reference, which may take seconds.
  std::function<void()> on_check = {};
  // Once the model is there, with random weights.
  std::function<void(model::Model&)> on_model = {};
  // As passes begin, and after each of their steps.
  std::function<void(const ProfileStep&)> on_step = {};
};

// Seconds of each measured step, by phase: forward, backward, optimizer.
using PhaseSeconds = std::map<std::string, std::vector<double>>;

// What one implementation took for one kind of step.
struct ProfileResult {
  ProfileRow row;                                      // of this library's model, also beside a peer
  verification::Case problem;                          // op=model, whatever its pass
  std::string impl = kOwnName, peer;                   // and the framework of a peer, with its version
  std::string status = "ok", reason;                   // of kRowStatuses
  PhaseSeconds seconds;                                // only if status is ok
  double forward_flops = 0, backward_flops = 0;        // of products and attention
  std::map<std::string, ErrorFigures> error;           // of what was checked; of a peer: against this library
  std::string checked;                                 // what was compared with the reference before
  std::optional<std::int64_t> state_bytes;             // before forward
  std::optional<std::int64_t> held_bytes, more_bytes;  // before backward, and beyond that at the peak
  std::optional<double> clock_mhz, power_w;            // while it made its steps
};

// The line of op=model, as that of a step: it has all keys.
verification::Case problem_of(const ProfiledModel& model, const ProfileSettings& settings);

// A result for each pass and implementation, given to `done` as soon as it is there. Tokens are random. Phases:
// forward; backward, which writes the gradients; optimizer, which clips them and makes a step of AdamW. Each ends
// when its work has ended. After each step, its products run alone. On a GPU parts are timed in as many further steps,
// by events between them. Before all that, layers are compared with the reference: a model that fails is not timed. A
// peer gets this library's weights, and is timed only if its loss and all gradients agree.
// Returns false if it was stopped.
bool profile(const ProfiledModel& model, const ProfileSettings& settings,
             const std::function<void(ProfileResult)>& done);

// The sum of some phases, for each step.
std::vector<double> total_of(const PhaseSeconds& seconds, const std::vector<std::string>& phases);

// Rows of op=model. Forward alone is pass=fwd; with backward, that alone is bwd and both are e2e; a step has step_fwd,
// step_rest (backward and optimizer) and step. Each row has the statistics of its phases. Shares are of
// `rate` in flops/s; 0: no shares.
std::vector<Row> rows_of(const ProfileResult& result, const Environment& environment, double rate);

// What the device reaches in this run; 0: not known.
struct Ceilings {
  double flops = 0, bytes = 0;  // a second
};

// The results as tables for a terminal. A part's floor is the time that its flops or its bytes take at the ceilings,
// whichever is longer.
std::string profile_table(const std::vector<ProfileResult>& results, const Ceilings& ceilings);

// The memory at each moment of a step, and the largest sizes that fit.
std::string memory_table(const std::vector<ProfileResult>& results, const std::vector<ProfileRow>& largest);

}  // namespace fovea::program
