// Prints what the program's own code says of presets and records, for the tests that hold the reports against it:
// facts presets NAME: the problem lines of a preset at full scale; facts cuts NAME: at the quick scale; facts verdicts
// FILE: for each row of a file its problem, implementation, whether it is the fastest, and whether it wins against
// naive, loses, ties or is not counted.
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "program/bench/presets.h"
#include "program/bench/ranking.h"
#include "program/record/record_file.h"
#include "verification/layers/operation.h"
#include "verification/linear/operation.h"
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

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  fovea::verification::register_operation(fovea::verification::linear_operation());
  fovea::verification::register_layers();
  if (what == "verdicts") {
    print_verdicts(argv[2]);
  } else if (what == "presets" || what == "cuts") {
    for (const auto& one : preset_cases(argv[2], what == "cuts" ? Scale::quick : Scale::full))
      std::printf("%s\n", fovea::verification::line_of(one).c_str());
  } else {
    return 2;
  }
  return 0;
}
