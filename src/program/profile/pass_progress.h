// Progress of a profile: a line as soon as a kind of step begins; on a terminal it then tells steps and time left.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "program/profile/profile.h"

namespace fovea::program {

class PassProgress {
 public:
  // Of `expected` results. Writes to stderr.
  explicit PassProgress(std::size_t expected);
  ~PassProgress() { end(); }
  PassProgress(const PassProgress&) = delete;
  PassProgress& operator=(const PassProgress&) = delete;

  void on_check(const std::string& model, std::size_t done);

  // `done`: results that are there. The first step is often slow, so the others alone tell the time left.
  void on_step(const std::string& model, const ProfileStep& step, std::size_t done);
  void on_result(const std::string& text, std::size_t done);
  void end();  // of the line that is open, if any

 private:
  void show(const std::string& text);

  std::size_t expected_;
  bool terminal_, line_open_ = false;
  std::chrono::steady_clock::time_point first_, shown_;  // first_: the end of these passes' first step
};

}  // namespace fovea::program
