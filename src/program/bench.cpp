// fovea bench: checks answers, then times them, over a preset or a sweep line.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>

#include "core/check.h"
#include "cuda/measure/device_memory.h"
#include "cuda/measure/stream_timer.h"
#include "fovea/attention.h"
#include "fovea/threads.h"
#include "program/bench/limits.h"
#include "program/bench/options.h"
#include "program/bench/presets.h"
#include "program/bench/progress.h"
#include "program/bench/sweep.h"
#include "program/command_line.h"
#include "program/flash.h"
#include "program/interrupt.h"
#include "program/machine/ceilings.h"
#include "program/machine/device.h"
#include "program/machine/session.h"
#include "program/output_file.h"
#include "program/verbs.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

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
    refuse_option("--memory-limit", "not a number of bytes", text, "bytes as 1048576, 512M or 8G");
  return value << shift;
}

std::vector<verification::Case> with_passes(const std::vector<verification::Case>& cases,
                                            const std::vector<std::string>& passes) {
  if (passes.empty()) return cases;
  for (const auto& pass : passes) {
    if (pass != "fwd" && pass != "bwd" && pass != "e2e")
      refuse_option("--passes", "not a pass", pass.empty() ? "an empty word" : pass, "a list of fwd, bwd, e2e");
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

// The problems of the preset, or of all lines.
std::vector<verification::Case> named_cases(const BenchOptions& o) {
  if (!o.preset.empty()) return preset_cases(o.preset, is_full(o) ? Scale::full : Scale::quick);
  std::vector<verification::Case> cases;
  for (const std::string& line : o.problems) {
    const std::vector<verification::Case> sweep = verification::parse_sweep(line);
    cases.insert(cases.end(), sweep.begin(), sweep.end());
  }
  return cases;
}

std::vector<verification::Case> cases_of(const BenchOptions& o) {
  std::vector<verification::Case> cases = with_passes(named_cases(o), words_of(o.passes));
  for (verification::Case& c : cases) {
    if (o.seed) c.values.set("seed", std::to_string(*o.seed));
    if (!o.device.empty()) c.values.set("device", o.device);
    if (c.place() != "contiguous")
      refuse_option("--problem", "bench times contiguous tensors only", "place=" + c.place(), "place=contiguous",
                    "`fovea verify` checks the other placements");
    if (c.operation->accumulates(c))
      refuse_option("--problem", "bench times gradients that are written, not added to", "accumulate=yes",
                    "accumulate=no", "`fovea verify` checks gradients that are added to");
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
  refuse_option("--yes", "a long sweep", fmt::format("{} cells, up to {}", cells, duration_text(seconds)),
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
      refuse_option("--problem", "a sweep over two devices", "device=cpu,cuda", "one of them, or --device");
  }
  return device;
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
  refuse_option("--baseline", "not timed in this run", baseline, fmt::format("one of {}", fmt::join(names, ", ")));
}

// What one sweep times.
struct Subject {
  std::vector<verification::Case> cases;
  std::vector<std::string> names;
  int threads = 1;
};

// The sweep of a --problem or of a preset without limits. Its implementations are those of --impl, else the preset's.
Subject subject_of(const BenchOptions& o) {
  Subject subject{.cases = cases_of(o), .names = implementation_names(o.implementations)};
  if (subject.names.empty())
    subject.names = o.preset.empty() ? std::vector<std::string>{kFlash} : find_preset(o.preset).implementations;
  subject.threads = o.threads > 0 ? o.threads : default_threads();
  return subject;
}

CellSettings cell_settings(const BenchOptions& o, const Subject& subject, DeviceKind device, const Machine& machine,
                           std::size_t contenders) {
  CellSettings settings;
  settings.limits.repeat_for = o.repeat_for > 0                   ? o.repeat_for
                               : !o.preset.empty() && !is_full(o) ? kQuickRepeat
                                                                  : kFullRepeat;
  settings.limits.timeout = o.timeout;
  if (device == DeviceKind::cpu) settings.limits.settle = kSettle;
  settings.threads = subject.threads;
  settings.memory_limit =
      o.memory_limit.empty() ? usable_memory(device, machine, contenders) : parse_memory(o.memory_limit);
  settings.device = device;
  if (!o.timing.empty()) settings.timing = o.timing;
  // The other turns begin with many untimed calls, which short turns would repeat too often.
  if (device == DeviceKind::cuda && settings.timing != "eager" && settings.timing != "host")
    settings.limits.turn = kGpuTurnSeconds;
  if (settings.timing == "graph") settings.limits.least_sample = cuda::kSecondsInARow;
  settings.seed = o.seed.value_or(0);
  return settings;
}

// One sweep with its table. `first`: no run of this command has written to the records yet.
SweepEnd run_subject(const BenchOptions& o, const Subject& subject, DeviceKind device, bool first,
                     RunCeilings& ceilings) {
  const Machine machine = this_machine();
  std::vector<Contender> contenders = contenders_of(
      subject.names, words_of(o.peers), o.python.empty() ? "python3" : o.python, device, operations_of(subject.cases));
  if (o.no_saved) contenders = with_no_saved(std::move(contenders), subject.cases);
  if (!o.against.empty()) contenders = with_old(std::move(contenders), OldProgram(o.against));
  check_baseline(o.baseline, contenders);
  CellSettings settings = cell_settings(o, subject, device, machine, contenders.size());
  ask_for_yes(o, subject.cases, contenders.size(), settings.limits);
  watch_interrupts();
  const Environment environment = environment_of(o, machine, settings);
  settings.ceilings = environment.ceilings;
  ceilings[settings.threads] = environment.ceilings;
  CellBench bench(std::move(contenders), settings, machine);
  const bool has_limits = !o.preset.empty() && find_preset(o.preset).limits != nullptr;
  const bool budgeted = !o.preset.empty() && o.repeat_for == 0;
  const SweepSettings sweep{.cases = subject.cases,
                            .output = o.output,
                            .markdown = o.markdown,
                            .csv = o.csv,
                            .resume = o.resume || !first,
                            .force = o.force,
                            .json = o.json,
                            .baseline = o.baseline,
                            .skip_lacking = o.implementations.empty(),
                            .budget_s = budgeted ? find_preset(o.preset).budget_s : 0,
                            .resume_command = shell_line(o.typed) + (o.resume ? "" : " --resume"),
                            .table = !has_limits};
  return run_sweep(bench, sweep, environment);
}

// Sweeps of several thread counts, then one table of the limits.
int run_limits(const BenchOptions& o) {
  const Scale scale = is_full(o) ? Scale::full : Scale::quick;
  std::vector<Row> rows;
  RunCeilings ceilings;
  int worst = 0;
  const std::vector<Limit>& limits = find_preset(o.preset).limits();
  const std::vector<LimitRun> runs = runs_of(limits, scale);
  for (const LimitRun& run : runs) {
    std::fprintf(stderr, "run %td of %zu: %d thread%s, %s\n", &run - runs.data() + 1, runs.size(), run.threads,
                 run.threads == 1 ? "" : "s", fmt::format("{}", fmt::join(run.implementations, ", ")).c_str());
    SweepEnd end =
        run_subject(o, {run.cases, run.implementations, run.threads}, DeviceKind::cpu, &run == runs.data(), ceilings);
    rows.insert(rows.end(), std::make_move_iterator(end.rows.begin()), std::make_move_iterator(end.rows.end()));
    worst = std::max(worst, end.code);
    if (end.code > 1) break;
  }
  std::FILE* const to = o.json ? stderr : stdout;
  std::fputs(limits_text(limits, scale, rows, ceilings).c_str(), to);
  return worst;
}

int run_bench(const BenchOptions& o) {
  check_options(o);
  if (!o.preset.empty() && find_preset(o.preset).limits != nullptr) return run_limits(o);
  const Subject subject = subject_of(o);
  const DeviceKind device = device_of(subject.cases);
  // Rows of an operation that cannot run there say so, as long as another one can.
  const Operations asked = operations_of(subject.cases);
  const auto is_missing = [device](const verification::Operation* one) {
    return !missing_device(*one, device, "bench").empty();
  };
  if (std::all_of(asked.begin(), asked.end(), is_missing)) {
    std::fputs(missing_device(*asked.front(), device, "bench").c_str(), stderr);
    return kNoDevice;
  }
  if (device == DeviceKind::cpu && !o.timing.empty())
    refuse_option("--timing", "is for GPUs only", o.timing, "--device cuda");
  RunCeilings ceilings;
  return run_subject(o, subject, device, true, ceilings).code;
}

int run_or_refuse(const BenchOptions& o) {
  try {
    return run_bench(o);
  } catch (const OutputLost& error) {
    std::fprintf(stderr, "fovea: nothing was measured: %s\n", error.what());
    return kOutputLost;
  }
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("bench", "Check implementations, then time them");
  static BenchOptions o;
  add_bench_options(verb, o);
  verb->footer(std::string(kBenchExamples) + verification::problem_line_help());
  verb->callback([&action] {
    o.typed = typed_words();
    action = [] { return run_or_refuse(o); };
  });
}

}  // namespace fovea::program
