// The tables of a study: summary, times, memory, accuracy, and the cells without a time.
#pragma once

#include <vector>

#include "program/report_study.h"
#include "program/report_table.h"

namespace fovea::program {

Table summary_table(const Study& study);             // one row per implementation and pass
std::vector<Table> time_tables(const Study& study);  // one per pass, type, mask, heads and batch
Table memory_table(const Study& study);              // before backward, and scratch
Table accuracy_table(const Study& study);            // worst error per implementation, type and tensor
Table failures_table(const Study& study);            // every row without a time, with its reason

// All rows, one line each, with the words and figures of the record.
std::string rows_csv(const Study& study);

// A time as the tables print it: figure, flags, the word where there is none.
Cell time_cell(const Configuration& configuration, std::string_view implementation);
Cell speed_up_cell(const Configuration& configuration, std::string_view implementation, std::string_view baseline);

// Those of this library that were timed where a peer was, in the study's order, and the ratio of the two.
constexpr const char* kOverPeers = "over the fastest peer";
std::vector<std::string> beside_peers(const Study& study, const std::vector<const Configuration*>& configurations);
Cell over_peers_cell(const Configuration& configuration, std::string_view implementation);

// n: noisy, l: launch-bound, !: impossible; with what each means.
std::string flag_marks(const Row& row);
std::string flags_legend();

// Geometric mean, extremes and losses of an implementation's ranked speed-ups in one pass.
struct SpeedUps {
  std::vector<double> ratios;
  double mean = 0, least = 0, most = 0;
  std::size_t losses = 0;
  const Configuration* best_at = nullptr;
  const Configuration* worst_at = nullptr;
};
SpeedUps speed_ups_of(const std::vector<Group>& groups, verification::CasePass pass, std::string_view implementation,
                      std::string_view baseline);

}  // namespace fovea::program
