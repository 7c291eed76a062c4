// fovea bench: checks answers, then times them, over a preset or a sweep line.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "core/check.h"
#include "core/printable.h"
#include "cuda/measure/device_memory.h"
#include "fovea/attention.h"
#include "fovea/threads.h"
#include "program/bench/presets.h"
#include "program/bench/progress.h"
#include "program/bench/sweep.h"
#include "program/command_line.h"
#include "program/interrupt.h"
#include "program/machine/ceilings.h"
#include "program/machine/device.h"
#include "program/machine/session.h"
#include "program/output_file.h"
#include "program/verbs.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

struct BenchOptions {
  std::string preset, problem, device, baseline, python, against, output, markdown, csv, scale, memory_limit;
  std::string timing;
  std::string implementations, passes, peers;  // comma lists
  int threads = 0;
  std::optional<std::uint64_t> seed;
  double repeat_for = 0, timeout = 60;
  bool resume = false, force = false, yes = false, json = false;
  std::vector<std::string> typed;  // the words of the command line
};

constexpr const char* kBenchExamples = R"(Examples:
  fovea bench --preset quick -o run.jsonl
  fovea bench --problem "lq=1k,2k,4k d=64" --impl flash,naive --baseline naive
  fovea bench --problem "lq=1k d=64" --impl ./libmine.so:my_attention,flash
Exit codes: 0 done, 1 a wrong or failed row, 2 bad usage or input,
3 the disk is full, 4 no such device, 130 interrupted.

)";
constexpr double kTrialSeconds = 0.1;  // shorter sampling is a trial, and its ceilings are measured briefly
constexpr double kSettle = 5e-3;
constexpr double kQuickRepeat = 0.5, kFullRepeat = 10;
constexpr std::size_t kManyCells = 2000;
constexpr double kLongSweep = 3600;

[[noreturn]] void refuse(const std::string& argument, const std::string& problem, const std::string& got,
                         const std::string& wanted, const std::string& hint = {}) {
  core::fail({.status = Status::invalid_argument,
              .argument = argument,
              .problem = problem,
              .got = got,
              .wanted = wanted,
              .hint = hint});
}

// Splits at commas. "a,,b" has three words; readers of the list refuse the empty one.
std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t start = 0; !list.empty() && start <= list.size();) {
    const std::size_t comma = std::min(list.find(',', start), list.size());
    words.push_back(list.substr(start, comma - start));
    start = comma + 1;
  }
  return words;
}

// "8G", "512M", "1048576": bytes, powers of 1024.
std::int64_t parse_memory(const std::string& text) {
  constexpr std::string_view units = "kMGT";
  std::size_t used = 0;
  std::int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = std::string::npos;
  }
  int shift = 0;
  if (used + 1 == text.size() && units.find(text.back()) != std::string_view::npos) {
    shift = 10 * (static_cast<int>(units.find(text.back())) + 1);
    ++used;
  }
  if (used != text.size() || value <= 0 || value > (std::int64_t{1} << 62) >> shift)
    refuse("--memory-limit", "not a number of bytes", text, "bytes as 1048576, 512M or 8G");
  return value << shift;
}

std::vector<verification::Case> with_passes(const std::vector<verification::Case>& cases,
                                            const std::vector<std::string>& passes) {
  if (passes.empty()) return cases;
  for (const auto& pass : passes) {
    if (pass != "fwd" && pass != "bwd" && pass != "e2e")
      refuse("--passes", "not a pass", pass.empty() ? "an empty word" : pass, "a list of fwd, bwd, e2e");
  }
  std::vector<verification::Case> result;
  for (const verification::Case& one : cases) {
    for (const auto& pass : passes) {
      const verification::Case c = with_word(one, "pass", pass);
      if (std::find(result.begin(), result.end(), c) == result.end()) result.push_back(c);
    }
  }
  return result;
}

bool is_full(const BenchOptions& o) { return o.scale == "full"; }

std::vector<verification::Case> cases_of(const BenchOptions& o) {
  const Scale scale = is_full(o) ? Scale::full : Scale::quick;
  std::vector<verification::Case> cases = with_passes(
      o.preset.empty() ? verification::parse_sweep(o.problem) : preset_cases(o.preset, scale), words_of(o.passes));
  for (verification::Case& c : cases) {
    if (o.seed) c.values.set("seed", std::to_string(*o.seed));
    if (!o.device.empty()) c.values.set("device", o.device);
    if (c.place() != "contiguous")
      refuse("--problem", "bench times contiguous tensors only", "place=" + c.place(), "place=contiguous",
             "`fovea verify` checks the other placements");
    if (c.operation->accumulates(c))
      refuse("--problem", "bench times gradients that are written, not added to", "accumulate=yes", "accumulate=no",
             "`fovea verify` checks gradients that are added to");
  }
  return cases;
}

// The quick scale of a preset takes minutes, so it needs no consent.
void ask_for_yes(const BenchOptions& o, const std::vector<verification::Case>& cases, std::size_t contenders,
                 const SamplingLimits& limits) {
  const std::size_t cells = cases.size() * contenders;
  const double seconds = estimated_seconds(cases, contenders, limits);
  const bool quick_preset = !o.preset.empty() && !is_full(o);
  if (o.yes || quick_preset || (cells <= kManyCells && seconds <= kLongSweep)) return;
  refuse("--yes", "a long sweep", fmt::format("{} cells, up to {}", cells, duration_text(seconds)),
         fmt::format("at most {} cells and {}, or --yes", kManyCells, duration_text(kLongSweep)));
}

// The highest that the system grants; workers inherit it, so processes of normal priority interrupt few samples.
// Returns the nice value.
int raise_priority() {
  setpriority(PRIO_PROCESS, 0, -20);
  return getpriority(PRIO_PROCESS, 0);
}

Environment environment_of(const BenchOptions& o, const Machine& machine, const CellSettings& settings) {
  Environment e = session_environment(machine, o.typed, settings.threads);
  e.facts["nice"] = std::to_string(raise_priority());  // before the probes
  const bool long_enough = settings.limits.repeat_for >= kTrialSeconds;
  if (settings.device == DeviceKind::cuda) {
    e.ceilings = probe_gpu(long_enough);
  } else if (long_enough) {
    e.ceilings = probe_all(settings.threads);
  }
  return e;
}

// The device of all cases: memory limit, threads and ceilings are for one device.
DeviceKind device_of(const std::vector<verification::Case>& cases) {
  const DeviceKind device = cases.empty() ? DeviceKind::cpu : cases.front().device();
  for (const verification::Case& c : cases) {
    if (c.device() != device)
      refuse("--problem", "a sweep over two devices", "device=cpu,cuda", "one of them, or --device");
  }
  return device;
}

Operations operations_of(const std::vector<verification::Case>& cases) {
  Operations operations;
  for (const verification::Case& c : cases) {
    if (std::find(operations.begin(), operations.end(), c.operation) == operations.end())
      operations.push_back(c.operation);
  }
  return operations;
}

// Free memory minus each worker's fixed need: on a GPU, its context and the buffer that flushes the cache.
std::int64_t usable_memory(DeviceKind device, const Machine& machine, std::size_t contenders) {
  if (device == DeviceKind::cpu) return machine.available_bytes;
  constexpr std::int64_t kPerWorker = std::int64_t{1} << 30;
  const std::int64_t free = cuda::free_device_bytes();
  return std::max(free - static_cast<std::int64_t>(contenders + 1) * kPerWorker, free / 2);
}

void check_baseline(const std::string& baseline, const std::vector<Contender>& contenders) {
  std::vector<std::string> names;
  for (const Contender& one : contenders) names.push_back(one.name);
  if (baseline.empty() || std::find(names.begin(), names.end(), baseline) != names.end()) return;
  refuse("--baseline", "not timed in this run", baseline, fmt::format("one of {}", fmt::join(names, ", ")));
}

// Refuses options that contradict each other or would have no effect.
void check_options(const BenchOptions& o) {
  if (o.preset.empty() == o.problem.empty())
    refuse("--preset", "wants exactly one of --preset and --problem", o.preset.empty() ? "neither" : "both",
           "one of them");
  if (o.resume && o.output.empty()) refuse("--resume", "no file to resume", "no -o", "-o FILE");
  if (!o.scale.empty() && o.preset.empty())
    refuse("--scale", "only presets have a scale", "--problem", "--preset NAME", "leave --scale out");
  if (o.force && !o.resume)
    refuse("--force", "only has an effect with --resume", "no --resume", "--resume -o FILE", "leave --force out");
  if (!o.python.empty() && o.peers.empty() && o.implementations.find(".py:") == std::string::npos)
    refuse("--python", "nothing here runs in Python", o.python, "--with PEERS, or --impl kernel.py:function",
           "leave --python out");
}

int run_bench(const BenchOptions& o) {
  check_options(o);
  const Machine machine = this_machine();
  const std::vector<verification::Case> cases = cases_of(o);
  const DeviceKind device = device_of(cases);
  if (const std::string missing = missing_device(device, "bench"); !missing.empty()) {
    std::fputs(missing.c_str(), stderr);
    return kNoDevice;
  }
  if (device == DeviceKind::cpu && !o.timing.empty()) refuse("--timing", "is for GPUs only", o.timing, "--device cuda");
  std::vector<std::string> names = implementation_names(o.implementations);
  if (names.empty())
    names = o.preset.empty() ? std::vector<std::string>{"flash"} : find_preset(o.preset).implementations;
  std::vector<Contender> contenders =
      contenders_of(names, words_of(o.peers), o.python.empty() ? "python3" : o.python, device, operations_of(cases));
  if (!o.against.empty()) contenders = with_old(std::move(contenders), OldProgram(o.against));
  check_baseline(o.baseline, contenders);
  CellSettings settings;
  settings.limits.repeat_for = o.repeat_for > 0                   ? o.repeat_for
                               : !o.preset.empty() && !is_full(o) ? kQuickRepeat
                                                                  : kFullRepeat;
  settings.limits.timeout = o.timeout;
  if (device == DeviceKind::cpu) settings.limits.settle = kSettle;
  settings.threads = o.threads > 0 ? o.threads : default_threads();
  settings.memory_limit =
      o.memory_limit.empty() ? usable_memory(device, machine, contenders.size()) : parse_memory(o.memory_limit);
  settings.device = device;
  if (!o.timing.empty()) settings.timing = o.timing;
  settings.seed = o.seed.value_or(0);
  ask_for_yes(o, cases, contenders.size(), settings.limits);
  watch_interrupts();
  const Environment environment = environment_of(o, machine, settings);
  settings.ceilings = environment.ceilings;
  CellBench bench(std::move(contenders), settings, machine);
  const std::string again = shell_line(o.typed) + (o.resume ? "" : " --resume");
  const bool budgeted = !o.preset.empty() && o.repeat_for == 0;
  const SweepSettings sweep{.cases = cases,
                            .output = o.output,
                            .markdown = o.markdown,
                            .csv = o.csv,
                            .resume = o.resume,
                            .force = o.force,
                            .json = o.json,
                            .baseline = o.baseline,
                            .budget_s = budgeted ? find_preset(o.preset).budget_s : 0,
                            .resume_command = again};
  try {
    return run_sweep(bench, sweep, environment);
  } catch (const RecordFileError& error) {
    std::fprintf(stderr, "fovea: %s\n", core::printable_lines(error.what()).c_str());
    return 2;
  } catch (const OutputLost& error) {
    std::fprintf(stderr, "fovea: nothing was measured: %s\n", error.what());
    return kOutputLost;
  }
}

// Options that say what is timed.
void add_subject_options(CLI::App* verb, BenchOptions& o) {
  verb->add_option(
          "--preset", o.preset,
          "grid of problems: quick, report-a, report-b,\nreport-c, report-d2, report-d3, report-e,\nh200-dense")
      ->check(not_empty())
      ->type_name("NAME");
  verb->add_option("--problem", o.problem, "problem line; comma-separated values make a sweep")
      ->check(not_empty())
      ->type_name("LINE");
  verb->add_option("--impl", o.implementations,
                   "implementations to time: flash, cpu.avx2, naive,\n./lib.so:symbol, kernel.py:function")
      ->check(not_empty())
      ->type_name("LIST");
  verb->add_option("--passes", o.passes, "fwd, bwd, e2e: overrides pass= of the lines")
      ->check(not_empty())
      ->type_name("LIST");
  verb->add_option("--device", o.device, "overrides device= of the lines")->check(CLI::IsMember({"cpu", "cuda"}));
  verb->add_option("--seed", o.seed, "seed of the inputs and of the order of turns")
      ->check(whole_number_within(0, UINT64_MAX))
      ->type_name("N");
  verb->add_option("--scale", o.scale, "scale of the preset (quick)")->check(CLI::IsMember({"quick", "full"}));
  verb->add_option("--with", o.peers,
                   "peers to time, run by --python: torch, or one of\nits kernels such as torch.flash; onnxruntime")
      ->check(not_empty())
      ->type_name("LIST");
  verb->add_option("--against", o.against,
                   "older fovea program; its implementations are timed\ntoo, in turns, under names such as flash@old")
      ->check(not_empty())
      ->type_name("PROGRAM");
  verb->add_option("--python", o.python, "Python that runs peers and kernel.py:function\n(python3)")
      ->check(not_empty())
      ->type_name("PATH");
}

// Options that say how to time, and where the times go.
void add_timing_options(CLI::App* verb, BenchOptions& o) {
  verb->add_option("--timing", o.timing,
                   "GPU only. cold: L2 flushed before each run (the\ndefault). hot: an untimed run first. graph: mean\n"
                   "of up to 100 runs in a CUDA graph. host: how long\na call keeps the host busy")
      ->check(CLI::IsMember({"cold", "hot", "graph", "host"}));
  verb->add_option("--threads", o.threads,
                   "CPU threads (default: FOVEA_THREADS, else all\nprocessors that this process may use)")
      ->check(whole_number_within(1, 4096))
      ->type_name("N");
  verb->add_option("--repeat-for", o.repeat_for,
                   "longest sampling of a problem and implementation\n(10; quick presets 0.5)")
      ->check(number_within(1e-3, 1e6))
      ->type_name("SECONDS");
  verb->add_option("--timeout", o.timeout, "longest that one run may take (60)")
      ->check(number_within(1e-3, 1e6))
      ->type_name("SECONDS");
  verb->add_option("--memory-limit", o.memory_limit, "memory limit of a problem, as 8G (default:\nall free memory)")
      ->type_name("BYTES");
  verb->add_option("-o,--output", o.output, "file of records: one JSON line per problem and\nimplementation")
      ->check(not_empty())
      ->type_name("FILE");
  verb->add_option("--export-markdown", o.markdown, "also write the table to this file, as Markdown")
      ->check(not_empty())
      ->type_name("FILE");
  verb->add_option("--export-csv", o.csv, "also write the rows of the table to this file, as\nCSV")
      ->check(not_empty())
      ->type_name("FILE");
  verb->add_flag("--resume", o.resume, "continue the file of records");
  verb->add_flag("--force", o.force, "resume a file of another machine or build too");
  verb->add_option("--baseline", o.baseline, "print speed-ups over this implementation")
      ->check(not_empty())
      ->type_name("NAME");
  verb->add_flag("--yes", o.yes, "allow a sweep of over 2000 cells or one hour");
  verb->add_flag("--json", o.json, "print records instead of the table");
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("bench", "Check implementations, then time them");
  static BenchOptions o;
  add_subject_options(verb, o);
  add_timing_options(verb, o);
  verb->footer(std::string(kBenchExamples) + verification::problem_line_help());
  verb->callback([&action] {
    o.typed = typed_words();
    action = [] { return run_bench(o); };
  });
}

}  // namespace fovea::program
