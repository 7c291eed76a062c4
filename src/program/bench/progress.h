// Progress of a sweep for people: one line that is updated on a terminal, a plain line for every tenth row elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "program/bench/sampler.h"
#include "program/record/record.h"

namespace fovea::program {

// "2 h 05 min", "3 min 10 s", "12 s".
std::string duration_text(double seconds);

class Progress {
 public:
  // `total` rows over these problem lines, which are named by what differs among them. Writes to stderr.
  Progress(std::size_t total, const std::vector<std::string>& problems);
  ~Progress();

  void on_turn(const RoundReport& report);
  void on_row(const Row& row);
  // A cell has ended. Names that resolve to one implementation share a row, so rows are counted anew.
  void on_cell(std::size_t rows_so_far);
  std::size_t done() const { return done_; }

 private:
  std::string position() const;  // [12/120], and the time left once it can be estimated
  void show(const std::string& text);

  std::size_t total_, done_ = 0, measured_ = 0;
  std::map<std::string, std::string> names_;  // of problem lines
  bool terminal_;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point start_, shown_;
};

}  // namespace fovea::program
