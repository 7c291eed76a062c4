// A sweep: cells times contenders, with a crash-safe record file, progress and a clean end after an interrupt.
#pragma once

#include <string>
#include <vector>

#include "program/bench/cell.h"
#include "program/record/record_file.h"

namespace fovea::program {

struct SweepSettings {
  std::vector<verification::Case> cases;
  std::string output;         // file of records; empty: none
  std::string markdown, csv;  // files of the table; empty: none
  bool resume = false, force = false, json = false;
  std::string baseline;
  bool skip_lacking = false;   // no row for an implementation that the operation of a case lacks and another has
  double budget_s = 0;         // seconds that the sweep should take; limits the sampling of each cell; 0: no budget
  std::string resume_command;  // the command line that continues the sweep
  bool table = true;
};

struct SweepEnd {
  int code = 0;  // for the program's exit
  std::vector<Row> rows;
};

// Prints the table, or with `json` the rows, to stdout, and everything else to stderr.
SweepEnd run_sweep(CellBench& bench, const SweepSettings& settings, const Environment& environment);

// Seconds of sampling for each remaining row: half of its share of the remaining time. The other half is for the check
// and the warm-up. At most `longest`, and never 0: a slow machine exceeds the budget.
double share_of_budget(double seconds_left, std::size_t rows_left, double longest);

// An upper estimate of the sweep's seconds, from a rough rate of this machine.
double estimated_seconds(const std::vector<verification::Case>& cases, std::size_t contenders,
                         const SamplingLimits& limits);

}  // namespace fovea::program
