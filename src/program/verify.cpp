// fovea verify: random cases on every implementation against the reference; a failing one is made small and printed.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/implementation.h"
#include "core/names.h"
#include "cuda/measure/device_calls.h"
#include "program/command_line.h"
#include "program/machine/device.h"
#include "program/worker/device_reference.h"
#include "program/verbs.h"
#include "program/verify/coverage.h"
#include "program/verify/jobs.h"
#include "verification/differential.h"
#include "verification/shrink.h"
#include "verification/support_matrix.h"

namespace fovea::program {
namespace {

using verification::Outcome;
using verification::Variation;

struct VerifyOptions {
  std::int64_t cases = 2000;
  std::uint64_t seed = 1;
  std::vector<std::string> implementations;
  std::string device;  // empty: the line's, else cpu
  std::vector<std::string> passes;
  std::string problem;
  int threads = 0, jobs = 0;
  bool hostile = false, json = false;
};

constexpr std::int64_t kFullRun = 20000, kWantedPerCell = 20;
constexpr std::int64_t kManyCases = 200;  // below, one process does

bool names_device(const std::string& line) { return line.find("device=") != std::string::npos; }

// The cases of the line, on the device that it names or else that of --device, which ends up in the options.
std::vector<core::Case> replayed_cases(VerifyOptions& o) {
  std::vector<core::Case> cases = o.problem.empty() ? std::vector<core::Case>{} : core::parse_sweep(o.problem);
  const bool named = names_device(o.problem);
  const std::string wanted = !o.device.empty() ? "--device " + o.device : "one device";
  if (o.device.empty()) o.device = named ? core::name_of(cases.front().problem.device.kind) : "cpu";
  for (core::Case& c : cases) {
    const std::string device(core::name_of(c.problem.device.kind));
    if (named && device != o.device)
      core::fail({.status = Status::invalid_argument,
                  .call = "verify",
                  .argument = "--problem",
                  .problem = "a line of another device",
                  .got = "device=" + device,
                  .wanted = wanted});
    c.problem.device.kind = *core::device_kind_of(o.device);
  }
  return o.hostile ? verification::with_every_input(cases) : cases;
}

// What a signal handler can still say: which case was running.
char crash_note[2048];

void report_crash(int signal_number) {
  const char* const name = signal_number == SIGSEGV  ? "\nmemory outside a tensor was touched (SIGSEGV)"
                           : signal_number == SIGFPE ? "\na division by zero (SIGFPE)"
                                                     : "\ncrashed";
  (void)!write(STDOUT_FILENO, name, std::strlen(name));
  (void)!write(STDOUT_FILENO, crash_note, std::strlen(crash_note));
  _exit(1);
}

// The command that runs a case again; threads of 0 are those of its seed.
std::string replay_of(const core::Case& c, std::string_view implementation, int threads) {
  const char* const device = c.problem.device.kind == DeviceKind::cuda ? " --device cuda" : "";
  const std::string given = threads > 0 ? fmt::format(" --threads {}", threads) : "";
  return fmt::format("fovea verify{}{} --impl {} --problem \"{}\"", device, given, implementation, core::line_of(c));
}

// Cases live on the host; a GPU gets copies of them.
verification::AttentionCalls calls_on(const std::string& device) {
  return device == "cuda" ? verification::AttentionCalls{cuda::forward_on_device, cuda::backward_on_device,
                                                         definition_on(DeviceKind::cuda)}
                          : verification::AttentionCalls{};
}

// What came of some cases.
struct Tally {
  std::int64_t passed = 0, failed = 0, refused = 0, exempt = 0;
  nlohmann::json failures = nlohmann::json::array();
  Coverage coverage;

  nlohmann::json json() const {
    return {{"passed", passed}, {"failed", failed},     {"refused", refused},
            {"exempt", exempt}, {"failures", failures}, {"coverage", coverage.json()}};
  }
  void add(const nlohmann::json& other) {
    passed += other["passed"].get<std::int64_t>();
    failed += other["failed"].get<std::int64_t>();
    refused += other["refused"].get<std::int64_t>();
    exempt += other["exempt"].get<std::int64_t>();
    failures.insert(failures.end(), other["failures"].begin(), other["failures"].end());
    coverage.add(other["coverage"]);
  }
};

class Verification {
 public:
  Verification(const VerifyOptions& options, const std::vector<core::Case>& replayed)
      : options_(options), replayed_(replayed), calls_(calls_on(options.device)) {}

  int run();

 private:
  void choose_implementations();
  void run_cases(std::int64_t first, std::int64_t step, SharedProgress& progress);
  Variation variation(const core::Case& c) const;
  void run_case(const core::Case& c);
  void judge(const core::Case& c, const core::Implementation& implementation, const Outcome& outcome);
  void fail(const core::Case& c, const core::Implementation& implementation, const Outcome& outcome);
  void note_for_crash(const core::Case& c, const core::Implementation& implementation) const;
  void show_progress(const SharedProgress& progress);
  void print_summary();

  const VerifyOptions& options_;
  const std::vector<core::Case>& replayed_;  // instead of random cases
  const verification::AttentionCalls calls_;
  std::vector<const core::Implementation*> implementations_;
  Tally tally_;
  bool is_part_ = false;  // one of several processes: another prints the last line
  bool lost_ = false;     // the device, for this process
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), shown_;
};

void Verification::choose_implementations() {
  const DeviceKind device = *core::device_kind_of(options_.device);
  for (const auto& one : core::all_implementations()) {
    if (one.device != device) continue;
    const bool named = std::find(options_.implementations.begin(), options_.implementations.end(), one.name) !=
                       options_.implementations.end();
    if (!options_.implementations.empty() && !named) continue;
    const std::string unavailable = one.unavailable();
    if (unavailable.empty()) {
      implementations_.push_back(&one);
    } else if (named) {
      core::fail({.status = Status::unsupported,
                  .call = "verify",
                  .argument = "--impl",
                  .problem = "this machine cannot run it",
                  .got = std::string(one.name) + ": " + unavailable});
    } else if (!options_.json) {
      fmt::print("not run here: {}: {}\n", one.name, unavailable);
    }
  }
  for (const auto& name : options_.implementations) {
    const bool known = std::any_of(implementations_.begin(), implementations_.end(),
                                   [&name](const auto* one) { return one->name == name; });
    if (known) continue;
    std::vector<std::string> all;
    for (const auto& one : core::all_implementations()) all.emplace_back(one.name);
    const std::string near = core::nearest_word(name, all);
    core::fail({.status = Status::invalid_argument,
                .call = "verify",
                .argument = "--impl",
                .problem = "no implementation of this name on " + options_.device,
                .got = name,
                .wanted = fmt::format("one of {}", fmt::join(all, ", ")),
                .hint = near.empty() ? "" : "did you mean `" + near + "`?"});
  }
}

void Verification::note_for_crash(const core::Case& c, const core::Implementation& implementation) const {
  std::string note = fmt::format("\n  {}\n", replay_of(c, implementation.name, options_.threads));
  if (!is_part_) note += fmt::format("{} passed, {} failed\n", tally_.passed, tally_.failed + 1);
  std::strncpy(crash_note, note.c_str(), sizeof crash_note - 1);
}

void Verification::run_case(const core::Case& c) {
  note_for_crash(c, *implementations_.front());
  verification::Differential differential(c, variation(c), calls_);
  for (const auto* implementation : implementations_) {
    note_for_crash(c, *implementation);
    judge(c, *implementation, differential.run(*implementation));
  }
}

void Verification::judge(const core::Case& c, const core::Implementation& implementation, const Outcome& outcome) {
  switch (outcome.kind) {
    case Outcome::Kind::passed:
      ++tally_.passed;
      tally_.coverage.count(implementation.name, c);
      return;
    case Outcome::Kind::exempt:
      ++tally_.exempt;
      return;
    case Outcome::Kind::failed:
      return fail(c, implementation, outcome);
    case Outcome::Kind::refused:
      break;
  }
  // A cell that the support matrix promises must not refuse.
  const Pass pass = c.pass == core::CasePass::fwd ? Pass::forward : Pass::backward;
  const auto support = support_of(implementation, verification::cell_of(c, pass)).support;
  if (support == verification::Support::yes) {
    fail(c, implementation,
         {Outcome::Kind::failed, "refused, though the support matrix promises it: " + outcome.reason});
  } else {
    ++tally_.refused;
  }
}

// Every smaller case is tried as its line would replay it, with the variation that follows from the line.
void Verification::fail(const core::Case& c, const core::Implementation& implementation, const Outcome& outcome) {
  ++tally_.failed;
  lost_ = options_.device == "cuda" && cuda::device_lost();
  const auto run_as_replayed = [&](const core::Case& smaller) {
    note_for_crash(smaller, implementation);
    return verification::Differential(smaller, variation(smaller), calls_).run(implementation);
  };
  const auto fails = [&](const core::Case& smaller) { return run_as_replayed(smaller).kind == Outcome::Kind::failed; };
  const bool shrinks = options_.problem.empty() && !lost_;
  const core::Case small = shrinks ? verification::shrunk(c, fails) : c;
  const std::string reason = small == c ? outcome.reason : run_as_replayed(small).reason;
  tally_.failures.push_back({{"impl", implementation.name},
                             {"problem", core::line_of(c)},
                             {"shrunk", core::line_of(small)},
                             {"variation", text_of(variation(small))},
                             {"reason", reason}});
  if (options_.json) return;
  fmt::print("{}FAILED {} on {}\n  smallest: {}\n  with {} (drawn from the seed)\n  {}\n",
             isatty(STDOUT_FILENO) != 0 ? "\r\033[K" : "", implementation.name, core::line_of(c),
             replay_of(small, implementation.name, options_.threads), text_of(variation(small)), reason);
  if (lost_) fmt::print("  the device answers no more, so the run ends here\n");
  std::fflush(stdout);
}

void Verification::show_progress(const SharedProgress& progress) {
  const auto now = std::chrono::steady_clock::now();
  if (options_.json || isatty(STDERR_FILENO) == 0 || now - shown_ < std::chrono::milliseconds(200)) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::int64_t done = progress.done, total = options_.cases;
  const double left =
      seconds / static_cast<double>(std::max<std::int64_t>(done, 1)) * static_cast<double>(total - done);
  fmt::print(stderr, "\r\033[K[{}/{}] {} passed, {} failed, {:.0f} s left", done, total, progress.passed.load(),
             progress.failed.load(), left);
  if (done == total) fmt::print(stderr, "\r\033[K");
}

void Verification::print_summary() {
  const bool full = options_.problem.empty() && options_.cases >= kFullRun;
  const bool all_passes = options_.passes.empty();
  const auto asks = [&](const char* pass) {
    return all_passes || std::find(options_.passes.begin(), options_.passes.end(), pass) != options_.passes.end();
  };
  const auto shortages =
      full ? tally_.coverage.below(kWantedPerCell, asks("fwd"), asks("bwd")) : std::vector<Coverage::Shortage>{};
  tally_.failed += static_cast<std::int64_t>(shortages.size());
  if (options_.json) {
    for (const auto& one : shortages) tally_.failures.push_back({{"cell", one.cell}, {"executed", one.executed}});
    nlohmann::json summary{{"schema", "fovea.verify/1"}, {"seed", options_.seed}, {"cases", options_.cases}};
    summary.update(tally_.json());
    fmt::print("{}\n", summary.dump());
    return;
  }
  if (options_.problem.empty()) fmt::print("{}", tally_.coverage.text());
  for (const auto& one : shortages)
    fmt::print("FAILED only {} cases of {}, {} wanted\n", one.executed, one.cell, kWantedPerCell);
  if (tally_.refused > 0) fmt::print("{} refused as the support matrix says\n", tally_.refused);
  if (tally_.exempt > 0)
    fmt::print("{} not judged: baselines are exempt from the rules for NaN and infinity, and {}\n", tally_.exempt,
               verification::kUnjudged);
  fmt::print("{} passed, {} failed\n", tally_.passed, tally_.failed);
}

Variation Verification::variation(const core::Case& c) const {
  Variation v = verification::variation_of(c);
  if (options_.threads > 0) v.threads = options_.threads;
  return v;
}

void Verification::run_cases(std::int64_t first, std::int64_t step, SharedProgress& progress) {
  verification::CaseLimits limits{.device = *core::device_kind_of(options_.device)};
  if (!options_.passes.empty()) {
    limits.forward = options_.passes.front() == "fwd" || options_.passes.back() == "fwd";
    limits.backward = options_.passes.front() == "bwd" || options_.passes.back() == "bwd";
  }
  for (std::int64_t n = first; n < options_.cases && !lost_; n += step) {
    const std::int64_t passed = tally_.passed, failed = tally_.failed;
    const core::Case c = verification::random_case(options_.seed, static_cast<std::uint64_t>(n), limits);
    run_case(c);
    ++progress.done;
    progress.passed += tally_.passed - passed;
    progress.failed += tally_.failed - failed;
    if (step == 1) show_progress(progress);
  }
}

int Verification::run() {
  const std::string missing =
      missing_device(*core::device_kind_of(options_.device), "verify",
                     names_device(options_.problem) ? "device=cpu in the line" : "--device cpu");
  if (!missing.empty()) {
    std::fputs(missing.c_str(), stderr);
    return kNoDevice;
  }
  if (options_.device == "cuda" && options_.jobs > 1) {
    core::fail({.status = Status::unsupported,
                .call = "verify",
                .argument = "--jobs",
                .problem = "one process at a time verifies on a GPU",
                .got = std::to_string(options_.jobs),
                .wanted = "1"});
  }
  choose_implementations();
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, report_crash);
  const bool many = options_.device == "cpu" && options_.cases >= kManyCases;
  const int jobs = options_.jobs > 0 ? options_.jobs : many ? default_threads() : 1;
  if (!options_.problem.empty()) {
    for (const core::Case& c : replayed_) run_case(c);
  } else if (jobs == 1) {
    SharedProgress progress{};
    run_cases(0, 1, progress);
  } else {
    const auto part = [&](int index, SharedProgress& progress) {
      is_part_ = true;
      run_cases(index, jobs, progress);
      return tally_.json();
    };
    for (const auto& part_tally : run_in_processes(jobs, part, [this](const auto& p) { show_progress(p); })) {
      if (part_tally.is_null()) {
        ++tally_.failed;  // the process has printed the case that ended it
      } else {
        tally_.add(part_tally);
      }
    }
  }
  print_summary();
  return tally_.failed == 0 ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto options = std::make_shared<VerifyOptions>();
  auto* verb = app.add_subcommand("verify", "Check the implementations against the reference on random cases");
  auto* cases = verb->add_option("--cases", options->cases, "how many random cases; 20000 are a full run")
                    ->check(whole_number_within(1, 1'000'000'000))
                    ->capture_default_str()
                    ->type_name("N");
  auto* seed = verb->add_option("--seed", options->seed, "another seed, other cases")
                   ->check(whole_number_within(0, UINT64_MAX))
                   ->capture_default_str()
                   ->type_name("N");
  verb->add_option("--impl", options->implementations, "only these, as cpu.avx2,reference (default: all that run here)")
      ->delimiter(',')
      ->type_name("LIST");
  verb->add_option("--device", options->device, "cpu or cuda (default: the one the line names, else cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  auto* passes = verb->add_option("--passes", options->passes, "fwd, bwd or both")
                     ->delimiter(',')
                     ->check(CLI::IsMember({"fwd", "bwd"}))
                     ->type_name("LIST");
  auto* problem =
      verb->add_option("--problem", options->problem, "replay this problem line (or sweep) instead of random cases")
          ->check(not_empty())
          ->excludes(cases, seed, passes)
          ->type_name("LINE");
  verb->add_flag("--hostile", options->hostile, "the line's cases with every data family at every placement")
      ->needs(problem);
  verb->add_option("--threads", options->threads, "threads of every call (default: one to three, by case)")
      ->check(whole_number_within(1, 1024))
      ->type_name("N");
  verb->add_option("--jobs", options->jobs, "processes that share the cases (default: one per processor on the CPU)")
      ->check(whole_number_within(1, 1024))
      ->type_name("N");
  verb->add_flag("--json", options->json, "one JSON object instead of text");
  verb->footer(kProblemLineHelp);
  verb->callback([options, &action] {
    action = [options] {
      const std::vector<core::Case> replayed = replayed_cases(*options);
      return Verification(*options, replayed).run();
    };
  });
}

}  // namespace fovea::program
