// Compares two files of records: which cells changed by more than their spreads, and which cannot be decided.
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
  double ratio = 1;    // median of b / median of a: below 1, b is faster
  std::string reason;  // in words
};

// What is known of the differences between runs of one build.
struct Runs {
  bool one_build = false;  // both rows are of one build, machine and number of threads
  double spread = 0;       // seconds between the medians of such runs; 0: not known
};

// Both rows must have times. Faster or slower: the quartile intervals do not touch, the medians differ by more than the
// width of either interval and than runs of one build do, and the medians of the turns do not overlap (without the
// outer tenths). Rows of one build are neither. Same: each median lies within the other's interval, and both intervals
// are narrow.
Judgement judge(const Row& a, const Row& b, const Runs& runs = {});

// The pointers refer to the compared records, which must outlive this.
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
  std::vector<ComparedCell> cells;                                // with times in both files
  std::vector<std::pair<const Row*, const Row*>> status_changes;  // with different statuses in a and b
  std::vector<const Row*> only_a, only_b;
  std::vector<std::string> notes;  // other facts that the reader should know

  std::int64_t count(Verdict verdict) const;
  bool any_slower() const;  // also true if b has no time for a cell that a timed
};

// Differences that forbid a comparison, one sentence each: machine, threads, build.
std::vector<std::string> condition_differences(const Records& a, const Records& b);

// Pairs rows by problem line, implementation and threads. With `across_threads`, threads are ignored if each file has
// only one thread count. `again`: more runs of a's build, which show the spread between runs.
Comparison compare_records(const Records& a, const Records& b, bool across_threads,
                           const std::vector<Records>& again = {});

// By implementation; the empty name means all. Over cells with a clear verdict only.
std::map<std::string, GeometricMean> geometric_means(const Comparison& comparison);

}  // namespace fovea::program
