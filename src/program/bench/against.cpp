// Pairs of rows, their ratios and the geometric mean.
#include "program/bench/against.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "program/bench/ranking.h"
#include "program/bench/short_lines.h"
#include "program/bench/table.h"
#include "program/terminal_text.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

struct Pair {
  const Row* now;
  const Row* old;
  double ratio() const { return old->time_s->median / now->time_s->median; }
  bool overlaps() const {
    const TimeStatistics &a = *now->time_s, &b = *old->time_s;
    return a.q1 <= b.q3 && b.q1 <= a.q3;
  }
};

// The cells of one of our implementations that both programs have timed.
std::vector<Pair> pairs_of(const Contender& old, const std::vector<verification::Case>& cases,
                           const std::map<std::pair<std::string, std::string>, const Row*>& rows) {
  Contender now = old;
  now.name = old.of_old;
  now.of_old.clear();
  std::vector<Pair> pairs;
  for (const verification::Case& c : cases) {
    const std::string line = verification::line_of(c);
    const auto ours = rows.find({line, plan_cell(now, c).implementation}), theirs = rows.find({line, old.name});
    if (ours == rows.end() || theirs == rows.end()) continue;
    if (is_timed(*ours->second) && is_timed(*theirs->second)) pairs.push_back({ours->second, theirs->second});
  }
  return pairs;
}

}  // namespace

std::string against_summary(const std::vector<Contender>& contenders, const std::vector<verification::Case>& cases,
                            const std::vector<Row>& rows) {
  std::map<std::pair<std::string, std::string>, const Row*> by_cell;
  for (const Row& row : rows) by_cell[{row.problem, row.impl}] = &row;
  std::string text;
  std::vector<std::vector<std::string>> beyond;
  for (const Contender& old : contenders) {
    if (old.of_old.empty()) continue;
    const std::vector<Pair> pairs = pairs_of(old, cases, by_cell);
    if (pairs.empty()) continue;
    double sum = 0;
    for (const Pair& pair : pairs) {
      sum += std::log(pair.ratio());
      if (std::abs(pair.ratio() - 1) <= kNoticed) continue;
      beyond.push_back({"  " + fmt::format("{:.3f}", pair.ratio()), pair.now->impl,
                        pair.overlaps() ? "quartiles overlap" : "quartiles apart", short_line(pair.now->problem)});
    }
    text += fmt::format("{}: geometric mean of old/new {:.3f} over {} cell{}\n", old.of_old,
                        std::exp(sum / static_cast<double>(pairs.size())), pairs.size(), pairs.size() == 1 ? "" : "s");
  }
  if (text.empty()) return text;
  if (beyond.empty()) return text + fmt::format("no cell beyond {:.0f} %\n", 100 * kNoticed);
  return text + fmt::format("cells beyond {:.0f} %, old/new\n", 100 * kNoticed) + aligned(beyond);
}

}  // namespace fovea::program
