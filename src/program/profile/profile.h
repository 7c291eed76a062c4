// Times a model's forward, backward and optimizer, each as an interval of its own, and tells what memory they need.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/config.h"
#include "program/record/record.h"

namespace fovea::program {

inline constexpr const char* kPasses[] = {"forward", "forward+backward", "step"};

struct ProfiledModel {
  std::string name;  // of a preset, or custom
  model::Config config;
};

struct ProfileSettings {
  std::int64_t batch = 1, context = 128;
  std::vector<std::string> passes;       // of kPasses
  std::int64_t warm_up = 5, steps = 10;  // of each pass; only `steps` are measured
  std::int64_t free_bytes = 0;           // a plan beyond it is a row with status oom
  Device device;
  int threads = 1;
  std::function<bool()> stops = {};  // asked before each step
};

// A row for each pass, given to `done` as soon as it is there. Tokens are random. Phases: forward; backward, which
// first clears the gradients; optimizer, which clips them and makes a step of AdamW. Each ends when its work has ended.
// On a GPU parts are timed in as many further steps, in which the host waits for each of them. Returns false if it was
// stopped.
bool profile(const ProfiledModel& model, const ProfileSettings& settings, const std::function<void(ProfileRow)>& done);

// The rows as a table for a terminal. `fma_rate` in flops/s is what shares are of; 0: no shares.
std::string profile_table(const std::vector<ProfileRow>& rows, double fma_rate);

}  // namespace fovea::program
