// Runs cases, judges outcomes, shrinks failing cases, prints.
#include "program/verify/verification.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "core/binary_size.h"
#include "core/check.h"
#include "core/names.h"
#include "cuda/measure/device_tensors.h"
#include "fovea/threads.h"
#include "program/bench/short_lines.h"
#include "program/machine/device.h"
#include "program/machine/machine.h"
#include "program/machine/short_memory.h"
#include "program/terminal_text.h"
#include "program/verify/device_calls.h"
#include "verification/problem_line.h"
#include "verification/shrink.h"

namespace fovea::program {
namespace {

using verification::Case;
using verification::ImplementationFacts;
using verification::Operation;
using verification::Outcome;
using verification::Trial;

constexpr std::int64_t kFullRun = 20000, kWantedPerCell = 20, kWantedPerPlanKind = 5;
constexpr std::int64_t kManyCases = 200;  // fewer run in one process

// The running case, formatted in advance, because a signal handler can only write existing bytes.
char crash_note[2048];

void report_crash(int signal_number) {
  const bool segv = signal_number == SIGSEGV, is_short = segv && memory_is_short();
  const char* const name = is_short                  ? "\ncrashed (SIGSEGV): "
                           : segv                    ? "\nmemory outside a tensor was touched (SIGSEGV)"
                           : signal_number == SIGFPE ? "\na division by zero (SIGFPE)"
                                                     : "\ncrashed";
  (void)!write(STDOUT_FILENO, name, std::strlen(name));
  if (is_short) (void)!write(STDOUT_FILENO, kShortMemory, sizeof kShortMemory - 1);
  (void)!write(STDOUT_FILENO, crash_note, std::strlen(crash_note));
  _exit(1);
}

// The command that runs a case again; with threads = 0, the case's seed gives the number of threads.
std::string replay_of(const Case& c, std::string_view implementation, int threads) {
  const char* const device = c.device() == DeviceKind::cuda ? " --device cuda" : "";
  const std::string given = threads > 0 ? fmt::format(" --threads {}", threads) : "";
  return fmt::format("fovea verify{}{} --impl {} --problem \"{}\"", device, given, implementation,
                     short_line(verification::line_of(c)));
}

}  // namespace

bool names_device(const std::string& line) { return line.find("device=") != std::string::npos; }

Verification::Verification(const VerifyOptions& options, const Operation& operation, const std::vector<Case>& replayed)
    : options_(options),
      operation_(operation),
      replayed_(replayed),
      make_device_call_(device_calls(*core::device_kind_of(options.device))),
      tally_(operation) {}

void Verification::choose_implementations() {
  const DeviceKind device = *core::device_kind_of(options_.device);
  const auto& wanted = options_.implementations;
  std::vector<std::string> all;
  for (const ImplementationFacts& one : operation_.implementations()) {
    if (std::find(all.begin(), all.end(), one.name) == all.end()) all.push_back(one.name);
    const bool named = std::find(wanted.begin(), wanted.end(), one.name) != wanted.end();
    if (one.device != device || (!wanted.empty() && !named)) continue;
    if (one.unavailable.empty()) {
      implementations_.push_back(one);
    } else if (named) {
      core::fail({.status = Status::unsupported,
                  .argument = "--impl",
                  .problem = "this machine cannot run it",
                  .got = one.name + ": " + one.unavailable});
    } else if (!options_.json) {
      skipped_.push_back(wrapped("skipped " + one.name + ": " + one.unavailable, 2));
    }
  }
  for (const auto& name : wanted) {
    const bool known = std::any_of(implementations_.begin(), implementations_.end(),
                                   [&name](const auto& one) { return one.name == name; });
    if (known) continue;
    const std::string near = core::nearest_word(name, all);
    core::fail({.status = Status::invalid_argument,
                .argument = "--impl",
                .problem = "no implementation of this name on " + options_.device,
                .got = name,
                .wanted = fmt::format("one of {}", fmt::join(all, ", ")),
                .hint = near.empty() ? "" : "did you mean `" + near + "`?"});
  }
}

void Verification::note_for_crash(const Case& c, const ImplementationFacts& implementation) const {
  std::string note = fmt::format("\n  {}\n", replay_of(c, implementation.name, options_.threads));
  if (!is_part_) note += fmt::format("{} passed, {} failed\n", tally_.passed, tally_.failed + 1);
  std::strncpy(crash_note, note.c_str(), sizeof crash_note - 1);
}

// Refuses a case whose tensors do not fit into the free memory, and names the largest.
void Verification::check_memory(const Case& c) const {
  double all = 0, largest = 0;
  std::string name;
  for (const verification::TensorSpec& spec : operation_.tensors(c)) {
    double bytes = static_cast<double>(size_of(spec.dtype));
    for (const std::int64_t size : spec.sizes) bytes *= static_cast<double>(size);
    all += bytes;
    if (bytes <= largest) continue;
    largest = bytes;
    name = spec.name + " " + core::to_string(spec.sizes);
  }
  const std::int64_t physical = this_machine().available_bytes, addressable = free_address_space();
  const std::int64_t free = std::min(physical, addressable);
  if (all <= static_cast<double>(free)) return;
  const auto text = [](double bytes) { return core::binary_size(static_cast<std::int64_t>(std::min(bytes, 0x1p62))); };
  core::fail({.status = Status::invalid_argument,
              .argument = "--problem",
              .problem = "its tensors do not fit into memory",
              .got = text(all) + ", of which " + name + " takes " + text(largest),
              .wanted = "at most " + core::binary_size(free) +
                        (physical <= addressable ? ", the free memory"
                                                 : ", which the limit of this shell (ulimit -v) leaves")});
}

void Verification::run_case(const Case& c) {
  note_for_crash(c, implementations_.front());
  try {
    verification::Differential differential(varied(c), trial_of(c), make_device_call_);
    for (const ImplementationFacts& implementation : implementations_) {
      note_for_crash(c, implementation);
      judge(c, implementation, differential.run(implementation));
    }
  } catch (const std::bad_alloc&) {
    core::fail({.status = Status::out_of_memory,
                .argument = "verify",
                .problem = "no memory to check this case",
                .wanted = "room for the tensors, their copies and the expected results",
                .line = verification::line_of(c)});
  }
}

void Verification::judge(const Case& c, const ImplementationFacts& implementation, const Outcome& outcome) {
  switch (outcome.kind) {
    case Outcome::Kind::passed:
      ++tally_.passed;
      tally_.coverage.count(implementation.name, c);
      return;
    case Outcome::Kind::exempt:
      ++tally_.exempt[outcome.reason];
      return;
    case Outcome::Kind::out_of_memory:
      ++tally_.out_of_memory;
      if (options_.json) return;
      fmt::print("{}not judged: {} on\n  {}\n  {}\n", isatty(STDOUT_FILENO) != 0 ? "\r\033[K" : "", implementation.name,
                 wrapped(short_line(verification::line_of(c)), 4, 2), wrapped(outcome.reason, 4, 2));
      return;
    case Outcome::Kind::failed:
      return fail(c, implementation, outcome);
    case Outcome::Kind::refused:
      break;
  }
  // An implementation must not refuse a case that the support matrix promises.
  const Pass pass = c.backwards() ? Pass::backward : Pass::forward;
  const auto support = operation_.support_of(implementation, operation_.cell_of(c, pass)).support;
  if (support == verification::Support::yes && !operation_.is_beyond_cells(c)) {
    fail(c, implementation,
         {Outcome::Kind::failed, "refused, though the support matrix promises it: " + outcome.reason});
  } else {
    ++tally_.refused;
  }
}

// Tries every smaller case with the variation of its own line, so that the printed line replays the failure.
void Verification::fail(const Case& c, const ImplementationFacts& implementation, const Outcome& outcome) {
  ++tally_.failed;
  lost_ = options_.device == "cuda" && cuda::device_lost();
  const auto run_as_replayed = [&](const Case& smaller) {
    note_for_crash(smaller, implementation);
    return verification::Differential(varied(smaller), trial_of(smaller), make_device_call_).run(implementation);
  };
  const auto fails = [&](const Case& smaller) { return run_as_replayed(smaller).kind == Outcome::Kind::failed; };
  const bool shrinks = options_.problem.empty() && !lost_;
  const Case small = shrinks ? verification::shrunk(c, fails) : c;
  const std::string shrunk_reason = small == c ? outcome.reason : run_as_replayed(small).reason;
  tally_.failures.push_back({{"impl", implementation.name},
                             {"problem", verification::line_of(c)},
                             {"reason", outcome.reason},
                             {"shrunk", verification::line_of(small)},
                             {"shrunk_reason", shrunk_reason},
                             {"variation", text_of(varied(small), trial_of(small))}});
  if (options_.json) return;
  fmt::print("{}FAILED {} on\n  {}\n  smallest:\n  {}\n  with {} (drawn from the seed)\n  {}\n",
             isatty(STDOUT_FILENO) != 0 ? "\r\033[K" : "", implementation.name,
             wrapped(short_line(verification::line_of(c)), 4, 2),
             replay_of(small, implementation.name, options_.threads), text_of(varied(small), trial_of(small)),
             wrapped(shrunk_reason, 4, 2));
  if (lost_) fmt::print("  the device no longer responds, so the run ends here\n");
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
      full ? tally_.coverage.below({.per_cell = kWantedPerCell, .per_plan_kind = kWantedPerPlanKind}, asks("fwd"),
                                   asks("bwd"), *core::device_kind_of(options_.device))
           : std::vector<Coverage::Shortage>{};
  tally_.failed += static_cast<std::int64_t>(shortages.size());
  if (options_.json) {
    for (const auto& one : shortages)
      tally_.failures.push_back({{"cell", one.cell}, {"executed", one.executed}, {"wanted", one.wanted}});
    nlohmann::json summary{{"schema", "fovea.verify/1"},
                           {"operation", operation_.name()},
                           {"seed", options_.seed},
                           {"cases", options_.cases}};
    summary.update(tally_.json());
    fmt::print("{}\n", summary.dump());
    return;
  }
  const std::string whose = options_.drawn.size() > 1 ? std::string(operation_.name()) + ": " : "";
  const char* const none = tally_.judged_nothing() ? ": nothing was judged, since memory ran out" : "";
  fmt::print("{}{} passed, {} failed{}\n", whose, tally_.passed, tally_.failed, none);
  for (const auto& [cell, executed, wanted] : shortages)
    fmt::print("{}\n", wrapped(fmt::format("FAILED only {} cases of {}, {} wanted", executed, cell, wanted), 2));
  if (tally_.refused > 0) fmt::print("{} refused, as in the support matrix\n", tally_.refused);
  for (const auto& [reason, count] : tally_.exempt)
    fmt::print("{}\n", wrapped(fmt::format("{} not judged: {}", count, reason), 2));
  if (tally_.out_of_memory > 0) fmt::print("{} not judged: memory ran out\n", tally_.out_of_memory);
  for (const std::string& one : skipped_) fmt::print("{}\n", one);
  if (options_.coverage) fmt::print("\n{}", tally_.coverage.text());
}

Case Verification::varied(Case c) const {
  c.variation = operation_.variation_of(c);
  return c;
}

Trial Verification::trial_of(const Case& c) const {
  Trial trial = verification::trial_of(c);
  if (options_.threads > 0) trial.threads = options_.threads;
  return trial;
}

void Verification::run_cases(std::int64_t first, std::int64_t step, SharedProgress& progress) {
  verification::CaseLimits limits{.device = *core::device_kind_of(options_.device)};
  if (!options_.passes.empty()) {
    limits.forward = options_.passes.front() == "fwd" || options_.passes.back() == "fwd";
    limits.backward = options_.passes.front() == "bwd" || options_.passes.back() == "bwd";
  }
  for (std::int64_t n = first; n < options_.cases && !lost_; n += step) {
    const std::int64_t passed = tally_.passed, failed = tally_.failed;
    const Case c = operation_.random_case(options_.seed, static_cast<std::uint64_t>(n), limits);
    run_case(c);
    ++progress.done;
    progress.passed += tally_.passed - passed;
    progress.failed += tally_.failed - failed;
    if (step == 1) show_progress(progress);
  }
}

int Verification::run() {
  const std::string missing =
      missing_device(operation_, *core::device_kind_of(options_.device), "verify",
                     names_device(options_.problem) ? "device=cpu in the line" : "--device cpu");
  if (!missing.empty()) {
    std::fputs(missing.c_str(), stderr);
    return kNoDevice;
  }
  if (options_.device == "cuda" && options_.jobs > 1) {
    core::fail({.status = Status::unsupported,
                .argument = "--jobs",
                .problem = "only one process may verify on a GPU",
                .got = std::to_string(options_.jobs),
                .wanted = "1"});
  }
  choose_implementations();
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, report_crash);
  const bool many = options_.device == "cpu" && options_.cases >= kManyCases;
  const int jobs = options_.jobs > 0 ? options_.jobs : many ? default_threads() : 1;
  if (!options_.problem.empty()) {
    for (const Case& c : replayed_) {
      check_memory(c);
      run_case(c);
    }
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
        ++tally_.failed;  // the crashed process has printed its case
      } else {
        tally_.add(part_tally);
      }
    }
  }
  print_summary();
  return tally_.failed > 0 || tally_.judged_nothing() ? 1 : 0;
}

}  // namespace fovea::program
