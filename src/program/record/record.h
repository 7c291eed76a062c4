// The records of a run: one environment per session, then one row per (problem, implementation).
// python/fovea_report/record.schema.json is their JSON schema; docs/bench.md says how each figure is measured.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace fovea::program {

inline constexpr std::string_view kEnvSchema = "fovea.env/1";
inline constexpr std::string_view kRowSchema = "fovea.bench/1";
inline constexpr std::string_view kTrainingSchema = "fovea.train/1";
inline constexpr std::string_view kProfileSchema = "fovea.profile/1";
inline constexpr std::string_view kRowStatuses[] = {"ok",    "oom",     "unsupported", "mismatch",
                                                    "error", "timeout", "crashed"};
// Whether a row of this status makes a run fail. The others tell of a limit: of memory, of time, of what is
// implemented.
bool is_failure(std::string_view status);
inline constexpr std::string_view kRowFlags[] = {"impossible",    "noisy",      "launch_bound", "few_samples",
                                                 "sampled_check", "inaccurate", "low_probe",    "host_bound"};

struct Source {
  std::string commit;  // of the program's sources; "unknown" outside a repository
  bool dirty = false;  // the sources had uncommitted changes
  bool operator==(const Source&) const = default;
};

struct TimeStatistics {
  double median = 0, min = 0, mean = 0, std = 0, q1 = 0, q3 = 0;  // seconds
  std::int64_t n = 0;
  std::vector<double> samples;  // all samples, in the order of measurement
};
// Quartiles interpolate linearly; std divides by n - 1. There must be at least one sample.
TimeStatistics statistics_of(std::vector<double> samples);

struct ErrorFigures {
  double rel_l2 = 0, max_abs = 0, ratio_to_plain = 0;  // NaN is written as null
};

// The ceiling of a row: rates measured in the same run, just before and after the row's samples.
struct RowCeiling {
  double flops_per_s = 0;   // the larger of the two probes and of the best library product of the run
  double probe_before = 0;  // multiply-add probe at the row's thread count and type
  double probe_after = 0;   // the best of several if best_product beat the first
  double best_product = 0;  // best library matrix product of the run; 0 if none was measured
};

// The host's time in a call, split into the launches and the rest. Samples of the call and of its launches alternate,
// so that the machine's speed is the same for both. These are medians of the launches and of the differences.
struct LaunchShare {
  double median_s = 0, beyond_s = 0;
  std::optional<double> pooled_beyond_s = {};  // the rest, with a workspace from the library's pool; if it needs one
};

struct Row {
  std::string problem;  // canonical problem line
  std::string impl;     // resolved name: cpu.avx2, never flash
  std::string status;   // one of kRowStatuses
  std::string reason;   // empty if status is ok
  std::vector<std::string> flags;
  std::optional<TimeStatistics> time_s;          // only if status is ok
  std::map<std::string, TimeStatistics> phases;  // of a profiled model: time_s is of their sum
  std::optional<LaunchShare> launches;           // only with timer cuda_host, if the launches are known
  double flops = 0, bytes = 0;                   // of the problem, whatever the kernel executed
  std::optional<double> tflops;                  // flops / median / 1e12
  std::optional<double> ceiling_share;           // flops / median / ceiling
  std::optional<RowCeiling> ceiling;
  std::optional<std::int64_t> workspace_bytes;               // the most bytes of workspace at once
  std::optional<std::int64_t> saved_bytes;                   // saved state, besides out and lse
  std::optional<std::int64_t> memory_before_backward_bytes;  // inputs + outputs + saved
  std::optional<std::int64_t> memory_before_forward_bytes;   // of a model's step: weights, gradients, moments
  std::map<std::string, ErrorFigures> error;                 // per tensor: out lse dq dk dv
  int threads = 0;
  Source source;
  std::optional<double> clock_mhz, power_w;
  std::string timer;    // steady_clock, perf_counter, cuda_events, cuda_events_hot, cuda_graph, cuda_eager, cuda_host
  std::string machine;  // Environment::machine
  std::string peer;     // the framework that ran it, with version: PyTorch 2.9.1; empty without one

  bool times_the_host() const { return timer == "cuda_host"; }  // how long a call keeps it, not how long it runs
  bool has_flag(std::string_view flag) const;
  void fail(const std::string& the_status, const std::string& the_reason);  // also removes a time
};

// One step of a training. Losses are nats a byte.
struct TrainingStep {
  std::int64_t step = 0;           // the first is 1
  double loss = 0;                 // mean over the step's bytes, before its update
  std::optional<double> held_out;  // mean over all held-out bytes after the step; only some steps have it
  std::optional<double> trigram;   // the same of a trigram count model, beside every `held_out`
  double learning_rate = 0, gradient_norm = 0;
  double seconds = 0;      // that the step took
  std::int64_t bytes = 0;  // of text that the step learned from
};

// All parts of one kind in a phase, such as forward.norm, of one step: means over the measured steps.
struct PartTimes {
  std::int64_t calls = 0;
  double seconds = 0, flops = 0;
  double bytes = 0;  // of memory, if each array is read or written once; 0 in records of earlier versions
};

// Bytes of memory at one moment, or at the peak of a phase.
struct MemoryFigures {
  std::int64_t planned = 0;              // that hold something then
  std::optional<std::int64_t> measured;  // that were allocated: a model's memory is one block
};

// Memory and parts of one model in one kind of step. The times of its phases are rows of their own (op=model).
struct ProfileRow {
  std::string model;   // the name of a preset, or custom
  std::string sizes;   // layers=12 width=768 ..
  std::string passes;  // forward, forward+backward or step
  std::int64_t batch = 0, context = 0;
  std::string device = "cpu";                   // or cuda
  std::string status, reason;                   // ok; oom: no room; mismatch: its layers are wrong
  std::map<std::string, PartTimes> parts;       // forward.norm, backward.attention, ..
  std::map<std::string, MemoryFigures> memory;  // after_init, forward, before_backward, backward, optimizer
  std::string largest;  // batch or context: the largest that fits, verified by one step; empty: as the user says
  std::int64_t parameters = 0;
  std::int64_t state_bytes = 0, activation_bytes = 0, workspace_bytes = 0, planned_bytes = 0;
  std::optional<std::int64_t> measured_bytes;  // the most that was allocated at once
  double flops = 0;                            // of a step's products and attention
  std::optional<double> products_s;            // seconds of a step's products alone, in turns with the steps: median
  int threads = 0;
};

// Facts of one session. `facts` are shown to people, and compared between two files.
struct Environment {
  std::string machine;  // Machine::id: equal for files that may be compared
  std::string date;     // UTC, ISO 8601
  std::string command;
  Source source;
  std::string source_digest;  // of the program's sources; empty in records of earlier versions
  std::string version;
  int threads = 0;
  std::map<std::string, std::string> facts;  // cpu, isa, caches, memory, os, compiler, gpu, ...
  std::map<std::string, double> ceilings;    // flops/s or bytes/s, by name of the probe
};

// Whether programs of the same sources wrote both. If the commit does not decide, the digest does.
bool same_build(const Environment& a, const Environment& b);

// One line of JSON, without a line end.
std::string json_line(const Environment& environment);
std::string json_line(const Row& row);
std::string json_line(const TrainingStep& step);
std::string json_line(const ProfileRow& row);

// Throw std::runtime_error with the key that is missing or wrong.
Environment environment_of(std::string_view json);
Row row_of(std::string_view json);
TrainingStep training_step_of(std::string_view json);
ProfileRow profile_row_of(std::string_view json);
using AnyRecord = std::variant<Environment, Row, TrainingStep, ProfileRow>;
AnyRecord record_of(std::string_view json);  // the key `schema` decides

// Two rows measure the same thing if their keys are equal. Only a GPU's timers are part of the key, because they time
// different things.
std::string key_of(const Row& row);
std::string key_of(std::string_view problem, std::string_view impl, int threads, std::string_view timer);

}  // namespace fovea::program
