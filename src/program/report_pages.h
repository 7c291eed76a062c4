// One page per published report: its own columns and rules, with the figures measured here beside the printed ones.
#pragma once

#include <string>
#include <vector>

#include "program/report_published.h"
#include "program/report_study.h"
#include "program/report_table.h"

namespace fovea::program {

// The figures of a report that were also measured here.
struct Match {
  const PublishedFigure* published = nullptr;
  const Measured* here = nullptr;
};

struct PublishedPage {
  const PublishedReport* report = nullptr;
  std::string rule;                      // the report's own speed-up and bold rule, in words
  std::vector<std::string> comparisons;  // speed-ups here and there
  std::vector<std::string> findings;     // what is wrong or unsaid in the published figures
  std::vector<Table> tables;
  std::vector<Match> matches;
};

// Pages of the reports of which at least one figure was measured here. Rows of one machine and thread count only, those
// of the study's first matching row.
std::vector<PublishedPage> published_pages(const Study& study);

// Sentences on a published table, computed from it where it can show them.
std::vector<std::string> findings_of(const PublishedReport& report);

// D2: bytes that the eager form must hold between forward and backward, fp32: q, k, v, out, probabilities, log-sum-exp.
double eager_bytes(const AttentionProblem& problem);
// That formula in words, and how far the counted bytes of the matches and the published ones are from it.
std::string memory_against_formula(const std::vector<Match>& matches);

// The figure of one problem and implementation; null if the report has none.
const PublishedFigure* published_figure(const PublishedReport& report, const verification::AttentionCase& problem,
                                        std::string_view implementation);

// The same problem in another pass.
verification::AttentionCase with_pass(verification::AttentionCase problem, verification::CasePass pass);

}  // namespace fovea::program
