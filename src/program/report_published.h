// The figures of the published reports, as data: which problem, which implementation, what was printed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "verification/attention/case.h"

namespace fovea::program {

// One printed figure: a time, or the word that stood in its place.
struct PublishedFigure {
  verification::AttentionCase problem;
  std::string measurement;     // measurement_of(problem)
  std::string column;          // what the report calls the implementation: torch, triton_fa2
  std::string implementation;  // what stands for it here: naive, vectorized, fused, flash
  std::string word;            // OOM where the report printed no time
  double mean_s = 0;           // valid if `word` is empty
  double std_s = -1;           // negative: not printed
  double min_s = -1;
  double memory_before_backward_bytes = -1;
};

struct PublishedReport {
  std::string letter;    // B
  std::string preset;    // report-b
  std::string title;     // what it measured
  std::string hardware;  // as stated, or as inferred and then said so
  std::vector<PublishedFigure> figures;
};

// A, B, D2, D3, E.
const std::vector<PublishedReport>& published_reports();

// Comma-separated text with one head line; every row as wide as the head.
struct CsvText {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  const std::string& at(std::size_t row, std::string_view column) const;
};
CsvText parse_csv(std::string_view text);

// What makes two cases the same measurement: sizes, type, mask and pass; not device, inputs or placement.
std::string measurement_of(const verification::AttentionCase& c);

}  // namespace fovea::program
