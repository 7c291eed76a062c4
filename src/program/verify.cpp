// fovea verify: compares every implementation with the reference in random cases; shrinks and prints a failing case.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/problem_line.h"
#include "fovea/threads.h"
#include "program/command_line.h"
#include "program/machine/device.h"
#include "program/verbs.h"
#include "program/verify/verification.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

using verification::Case;
using verification::Operation;

// The cases of the line. If the line names a device, it replaces --device in the options.
std::vector<Case> replayed_cases(VerifyOptions& o) {
  std::vector<Case> cases = o.problem.empty() ? std::vector<Case>{} : verification::parse_sweep(o.problem);
  const bool named = names_device(o.problem);
  const std::string wanted = !o.device.empty() ? "--device " + o.device : "one device";
  if (o.device.empty()) o.device = named ? cases.front()["device"] : "cpu";
  for (Case& c : cases) {
    const std::string& device = c["device"];
    if (named && device != o.device)
      core::fail({.status = Status::invalid_argument,
                  .argument = "--problem",
                  .problem = "a line of another device",
                  .got = "device=" + device,
                  .wanted = wanted});
    c.values.set("device", o.device);
  }
  return o.hostile ? verification::with_every_input(cases) : cases;
}

const Operation& operation_named(const std::string& name) {
  if (const Operation* const found = verification::find_operation(name)) return *found;
  std::vector<std::string> known;
  std::string list;
  for (const Operation* one : verification::operations()) {
    known.emplace_back(one->name());
    list += (list.empty() ? "" : ", ") + known.back();
  }
  const std::string near = core::nearest_word(name, known);
  core::fail({.status = Status::invalid_argument,
              .argument = "--op",
              .problem = "no operation of this name",
              .got = name,
              .wanted = list,
              .hint = near.empty() ? "" : "did you mean `" + near + "`?"});
}

// One operation after another; ends as soon as there is no device.
int verify_all(const VerifyOptions& options, const std::vector<Case>& replayed) {
  std::vector<const Operation*> operations;
  for (const std::string& name : options.drawn) operations.push_back(&operation_named(name));
  if (operations.empty())
    operations.push_back(replayed.empty() ? verification::operations().front() : replayed.front().operation);
  int worst = 0;
  for (const Operation* const one : operations) {
    worst = std::max(worst, Verification(options, *one, replayed).run());
    if (worst == kNoDevice) break;
  }
  return worst;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto options = std::make_shared<VerifyOptions>();
  auto* verb = app.add_subcommand("verify", "Check implementations against the reference");
  auto* cases = verb->add_option("--cases", options->cases, "number of random cases; a full run has 20000")
                    ->check(whole_number_within(1, 1'000'000'000))
                    ->capture_default_str()
                    ->type_name("N");
  auto* seed = verb->add_option("--seed", options->seed, "seed that the cases are drawn from")
                   ->check(whole_number_within(0, UINT64_MAX))
                   ->capture_default_str()
                   ->type_name("N");
  verb->add_option("--impl", options->implementations,
                   "implementations to check, such as\ncpu.avx2,reference (default: all that this\nmachine can run)")
      ->delimiter(',')
      ->type_name("LIST");
  auto* operation =
      verb->add_option("--op", options->drawn, "operations to draw cases of, --cases of each\n(attention)")
          ->delimiter(',')
          ->check(not_empty())
          ->type_name("LIST");
  verb->add_option("--device", options->device, "device to run on (default: the one in --problem,\nelse cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  auto* passes = verb->add_option("--passes", options->passes, "passes to check (default: both)")
                     ->delimiter(',')
                     ->check(CLI::IsMember({"fwd", "bwd"}))
                     ->type_name("LIST");
  auto* problem =
      verb->add_option("--problem", options->problem, "replay this problem line or sweep instead of\nrandom cases")
          ->check(not_empty())
          ->excludes(cases, seed, passes, operation)
          ->type_name("LINE");
  verb->add_flag("--hostile", options->hostile,
                 "run --problem with every kind of data (data=) at\nevery placement (place=)")
      ->needs(problem);
  verb->add_option("--threads", options->threads, "CPU threads of each call (default: 1 to 3, drawn\nper case)")
      ->check(whole_number_within(1, kMaxThreads))
      ->type_name("N");
  verb->add_option("--jobs", options->jobs,
                   "processes that share the cases (default: one per\nCPU thread; on a GPU one)")
      ->check(whole_number_within(1, 1024))
      ->type_name("N");
  verb->add_flag("--coverage", options->coverage, "also print how many cases of each kind ran")->excludes(problem);
  verb->add_flag("--json", options->json, "print one JSON object instead of text");
  verb->footer(
      "Exit code: 0 no call failed; 1 a call failed, or memory ran out for every call,\n"
      "so that nothing was judged; 2 bad input; 4 no such device.\n\n" +
      verification::problem_line_help());
  verb->callback([options, &action] {
    action = [options] {
      const std::vector<Case> replayed = replayed_cases(*options);
      return verify_all(*options, replayed);
    };
  });
}

}  // namespace fovea::program
