// Prints what the program's own code says of presets and records, for the tests that hold the reports against it:
// facts profiles NAME and facts profile_cuts NAME: those of a preset of fovea profile;
// facts presets NAME: the problem lines of a preset at full scale; facts cuts NAME: at the quick scale; facts verdicts
// FILE: for each row of a file its problem, implementation, whether it is the fastest, and whether it wins against
// naive, loses, ties or is not counted.
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "program/bench/presets.h"
#include "program/bench/ranking.h"
#include "program/profile/presets.h"
#include "program/profile/profile.h"
#include "program/record/record_file.h"
#include "verification/layers/operation.h"
#include "verification/linear/operation.h"
#include "verification/model/operation.h"
#include "verification/problem_line.h"

namespace {

using namespace fovea::program;

const char* verdict(const Row& row, const Row* base) {
  if (base == nullptr || base == &row || !is_ranked(row) || !is_ranked(*base)) return "-";
  if (!told_apart(row, *base)) return "tie";
  return row.time_s->median < base->time_s->median ? "win" : "loss";
}

void print_verdicts(const std::string& file) {
  const Records records = load_records(file);
  std::map<std::string, std::vector<const Row*>> problems;
  for (const Row& row : records.rows) {
    const bool on_gpu = row.problem.find(" device=cuda ") != std::string::npos;
    problems[row.problem + "|" + (row.timer.starts_with("cuda_") ? row.timer : "") + "|" +
             (on_gpu ? "" : std::to_string(row.threads))]
        .push_back(&row);
  }
  for (const auto& [problem, rows] : problems) {
    const Row* base = nullptr;
    for (const Row* const row : rows) base = row->impl == "naive" ? row : base;
    const Row* const best = fastest_of(rows);
    for (const Row* const row : rows) {
      std::printf("%s\t%s\t%s\t%s\n", row->problem.c_str(), row->impl.c_str(), row == best ? "fastest" : "-",
                  verdict(*row, base));
    }
  }
}

void print_profile(const std::string& name, const std::string& scale) {
  const ProfilePreset& preset = profile_preset(name);
  for (const std::string& model : preset.models) {
    const fovea::model::Config& config = fovea::model::find_preset(model)->config;
    ProfileSettings settings;
    settings.batch = preset.at(scale).batch, settings.context = preset.at(scale).context;
    for (const char* const passes : kPasses) {
      ProfileResult result{
          .row = {.passes = passes}, .problem = problem_of({model, config}, settings), .status = "oom"};
      for (const Row& row : rows_of(result, {}, 0)) std::printf("%s\n", row.problem.c_str());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  fovea::verification::register_operation(fovea::verification::linear_operation());
  fovea::verification::register_layers();
  fovea::verification::register_operation(fovea::verification::model_operation());
  if (what == "verdicts") {
    print_verdicts(argv[2]);
  } else if (what == "presets" || what == "cuts") {
    for (const auto& one : preset_cases(argv[2], what == "cuts" ? Scale::quick : Scale::full))
      std::printf("%s\n", fovea::verification::line_of(one).c_str());
  } else if (what == "profiles" || what == "profile_cuts") {
    print_profile(argv[2], what == "profiles" ? "full" : "quick");
  } else {
    return 2;
  }
  return 0;
}
