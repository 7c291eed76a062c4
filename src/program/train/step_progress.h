// Progress of a training: one line that is updated on a terminal, a plain line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "program/record/record.h"

namespace fovea::program {

class StepProgress {
 public:
  // Steps before `first` are done. Writes to stderr.
  StepProgress(std::int64_t first, std::int64_t total);

  void on_step(const TrainingStep& step);
  void end();  // the line that is open, if any

 private:
  std::int64_t first_, total_;
  std::optional<double> held_out_;  // the last one
  bool terminal_, line_open_ = false;
  std::chrono::steady_clock::time_point start_, shown_;
};

}  // namespace fovea::program
