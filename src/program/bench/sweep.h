// A sweep: cells times contenders, with a file that survives, progress and a polite end.
#pragma once

#include <string>
#include <vector>

#include "program/bench/cell.h"
#include "program/record/record_file.h"

namespace fovea::program {

struct SweepSettings {
  std::vector<verification::Case> cases;
  std::string output;  // file of records; empty: none
  bool resume = false, force = false, json = false;
  std::string baseline;
  double budget_s = 0;         // what the sweep should take: sets how long each cell is sampled; 0: no budget
  std::string resume_command;  // what to type to go on
};

// Returns the exit code. Prints the table, or with `json` the rows, to stdout and everything else to stderr.
int run_sweep(CellBench& bench, const SweepSettings& settings, const Environment& environment);

// How long to sample each of the rows that are left, in the seconds that are left: half of a row's share, the other
// half is for its check and warm-up. Never more than `longest`, and never nothing: a slow machine takes longer.
double share_of_budget(double seconds_left, std::size_t rows_left, double longest);

// Seconds that the sweep may take at most, by a rough rate of this machine.
double estimated_seconds(const std::vector<verification::Case>& cases, std::size_t contenders,
                         const SamplingLimits& limits);

}  // namespace fovea::program
