// fovea explain: the walk through the list of implementations for one problem.
#include <cstdio>
#include <string>

#include "core/problem_line.h"
#include "fovea/attention.h"
#include "program/verbs.h"

namespace fovea::program {

void add_explain(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("explain", "Which implementation takes a problem, and why");
  static std::string line;
  verb->add_option("--problem", line, "the problem line")->required();
  verb->callback([&action] {
    action = [] {
      const core::Case c = core::parse_case(line);
      const Explanation explanation = explain(c.problem);
      std::printf("%s\n", core::line_of(c).c_str());
      for (const auto& step : explanation.walk) {
        std::printf("  %-24s %s\n", step.name.c_str(), step.accepted ? "taken" : step.reason.c_str());
      }
      return explanation.chosen.empty() ? 1 : 0;
    };
  });
}

}  // namespace fovea::program
