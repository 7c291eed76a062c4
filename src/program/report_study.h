// The rows of one or several record files, made ready for reporting: parsed, ordered, grouped, ranked.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/bench/ranking.h"
#include "verification/attention/case.h"

namespace fovea::program {

// One row together with the case that its problem line names.
struct Measured {
  Row row;
  verification::AttentionCase problem;
  const Environment* environment = nullptr;  // owned by the study

  bool timed() const { return is_timed(row); }
  bool ranked() const { return is_ranked(row); }
  bool noisy() const { return row.has_flag("noisy"); }
  double seconds() const { return row.time_s->median; }
  // naive, vectorized, fused, flash (any implementation of this library), or its own name.
  std::string_view role() const;
  bool is_peer() const;  // of another project: neither of this library nor one of its baselines
};

struct Study {
  std::vector<Environment> environments;
  std::vector<Measured> rows;                // of rows that measure the same thing one, as load_study says
  std::vector<Measured> calls;               // likewise, of a graph's node or of the host's time: no times of a run
  std::vector<std::string> implementations;  // in the order shown: baselines, peers, this library
  std::string baseline;                      // what speed-ups are over
  std::vector<std::string> warnings;

  std::vector<const Measured*> all() const;  // rows, then calls

  Study() = default;
  Study(const Study&) = delete;  // rows point into `environments`
  Study(Study&&) = default;
  Study& operator=(Study&&) = default;
};

// Of rows that measure the same thing stays that of the file which timed the most peers at its problem, of equals the
// last: this library and its peers are then of one run.
// Throws RecordFileError for a damaged file, Error(invalid_argument) for a baseline that no row has.
Study load_study(const std::vector<std::string>& paths, std::string_view baseline);

// The same problem by all implementations.
struct Configuration {
  verification::AttentionCase problem;
  std::map<std::string, const Measured*> by_implementation;

  const Measured* find(std::string_view implementation) const;
  const Measured* fastest() const;       // as fastest_of
  const Measured* fastest_peer() const;  // null if none was timed
};

// Configurations that differ in lengths only, or in lengths and head dimensions.
struct Group {
  std::string title;  // forward, causal, bf16, d=64, 12 heads, batch 1
  verification::CasePass pass = verification::CasePass::fwd;
  std::vector<Configuration> configurations;  // by head dimension, then length
};
enum class GroupBy { lengths, lengths_and_dims };
std::vector<Group> groups_of(const Study& study, GroupBy by);

// baseline seconds / own seconds, if both were timed and neither is physically impossible.
std::optional<double> speed_up(const Configuration& configuration, std::string_view implementation,
                               std::string_view baseline);
// May that speed-up enter a claim? Both must be ranked and told apart.
bool speed_up_ranked(const Configuration& configuration, std::string_view implementation, std::string_view baseline);

// seconds = coefficient * length^exponent, least squares on logarithms over the upper half of the lengths (at least
// three points with lengths a factor of four apart; none otherwise).
struct PowerLaw {
  double exponent = 0, coefficient = 0;
  std::int64_t from = 0, to = 0;
  bool noisy = false;  // some of the times are
};
std::optional<PowerLaw> fit_power_law(const Group& group, std::string_view implementation);

// Machine, threads, samples, date and commit of these rows in one line.
std::string conditions_of(const std::vector<const Measured*>& rows);
std::string conditions_of(const Group& group);

int threads_of(const Row& row);                                     // that its time depends on: on a GPU none, 0
std::string timer_word(const Row& row);                             // hot: of a GPU; empty for all others
std::string word_of(verification::CasePass pass);                   // forward, backward, forward + backward
std::string length_of(const verification::AttentionCase& problem);  // 4k; 1:4k where the lengths differ
std::string sizes_of(const verification::AttentionCase& problem);   // length 4k, d=64, bf16, causal, batch 1, 12 heads
std::string status_word(std::string_view status);  // OOM, timeout, mismatch: what stands in a cell instead of a figure

}  // namespace fovea::program
