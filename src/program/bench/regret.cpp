// Regret per problem, its geometric mean, and the worst problems.
#include "program/bench/regret.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "program/bench/cell.h"
#include "program/bench/ranking.h"
#include "program/bench/short_lines.h"
#include "program/flash.h"
#include "program/terminal_text.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

constexpr std::size_t kListed = 5;  // problems
constexpr double kWorthListing = 1.05;

struct Regret {
  const Row* chosen;
  const Row* fastest;
  double value() const { return chosen->time_s->median / fastest->time_s->median; }
};

bool is_automatic(const verification::Case& c, const std::string& name) {
  const auto all = c.operation->implementations();
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.automatic && one.name == name; });
}

// Problems whose chosen implementation was timed, and at least one other that could have been chosen.
std::vector<Regret> regrets_of(const Contender& flash, const std::vector<Contender>& contenders,
                               const std::vector<verification::Case>& cases,
                               const std::map<std::pair<std::string, std::string>, const Row*>& rows) {
  std::vector<Regret> regrets;
  for (const verification::Case& c : cases) {
    const auto row_of = [&, line = verification::line_of(c)](const std::string& name) -> const Row* {
      const auto found = rows.find({line, name});
      return found != rows.end() && is_timed(*found->second) ? found->second : nullptr;
    };
    const Row* const chosen = row_of(plan_cell(flash, c).implementation);
    if (chosen == nullptr) continue;
    const Row* fastest = chosen;
    bool alone = true;
    for (const Contender& other : contenders) {
      if (!other.ours || other.name == chosen->impl || !is_automatic(c, other.name)) continue;
      const Row* const row = row_of(other.name);
      if (row == nullptr) continue;
      alone = false;
      if (row->time_s->median < fastest->time_s->median) fastest = row;
    }
    if (!alone) regrets.push_back({chosen, fastest});
  }
  return regrets;
}

}  // namespace

std::string regret_summary(const std::vector<Contender>& contenders, const std::vector<verification::Case>& cases,
                           const std::vector<Row>& rows) {
  const auto flash = std::find_if(contenders.begin(), contenders.end(), [](const Contender& one) {
    return one.name == kFlash && one.of_old.empty();
  });
  if (flash == contenders.end()) return {};
  std::map<std::pair<std::string, std::string>, const Row*> by_cell;
  for (const Row& row : rows) by_cell[{row.problem, row.impl}] = &row;
  std::vector<Regret> regrets = regrets_of(*flash, contenders, cases, by_cell);
  if (regrets.empty()) return {};
  double sum = 0;
  for (const Regret& one : regrets) sum += std::log(one.value());
  std::ranges::stable_sort(regrets, [](const Regret& a, const Regret& b) { return a.value() > b.value(); });
  std::string text = wrapped(
      fmt::format("regret of the choice: geometric mean {:.3f} over {} problem{}, worst {:.3f}",
                  std::exp(sum / static_cast<double>(regrets.size())), regrets.size(), regrets.size() == 1 ? "" : "s",
                  regrets.front().value()),
      2) + "\n";
  std::vector<std::vector<std::string>> listed;
  for (const Regret& one : regrets) {
    if (listed.size() == kListed || one.value() < kWorthListing) break;
    listed.push_back({fmt::format("  {:.3f}", one.value()), one.chosen->impl, "not " + one.fastest->impl,
                      short_line(one.chosen->problem)});
  }
  return listed.empty() ? text : text + aligned(listed);
}

}  // namespace fovea::program
