// Two files of records laid side by side: which cells changed by more than their spreads, and which cannot be told.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/record/record_file.h"

namespace fovea::program {

enum class Verdict { same, faster, slower, unclear };
std::string_view to_string(Verdict verdict);

struct Judgement {
  Verdict verdict = Verdict::unclear;
  double ratio = 1;    // median time of b over that of a: below 1, b is faster
  std::string reason;  // in words
};

// Wants two rows with times. Faster or slower: the quartile intervals do not touch and the medians are further apart
// than either interval is wide. Same: each median lies within the other's interval, and both intervals are narrow.
Judgement judge(const Row& a, const Row& b);

// The rows belong to the records that were compared, which must outlive this.
struct ComparedCell {
  const Row* a;
  const Row* b;
  Judgement judgement;
};

struct GeometricMean {
  double ratio = 1;
  std::int64_t cells = 0;
};

struct Comparison {
  std::vector<ComparedCell> cells;                                // a time on both sides
  std::vector<std::pair<const Row*, const Row*>> status_changes;  // one status in a, another in b
  std::vector<const Row*> only_a, only_b;
  std::vector<std::string> notes;  // what the reader should know beside the verdicts

  std::int64_t count(Verdict verdict) const;
  bool any_slower() const;  // also true where b has no time for a cell that a has timed
};

// What must agree before two files can be compared, one sentence for each that does not: machine, threads, build.
std::vector<std::string> condition_differences(const Records& a, const Records& b);

// Pairs rows by problem line, implementation and threads. With `across_threads` the thread count is left out where
// both files have only one.
Comparison compare_records(const Records& a, const Records& b, bool across_threads);

// By implementation; the empty name stands for all. Times flagged impossible are left out.
std::map<std::string, GeometricMean> geometric_means(const Comparison& comparison);

}  // namespace fovea::program
