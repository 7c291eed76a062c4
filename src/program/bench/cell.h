// One cell of a sweep: a case and all contenders. Inputs are made once and every answer is checked. Then the contenders
// are timed in turns.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "program/bench/contender.h"
#include "program/bench/sampler.h"
#include "program/bench/spent_time.h"
#include "program/machine/machine.h"
#include "program/machine/power.h"
#include "program/record/record.h"
#include "program/worker/answer_check.h"
#include "program/worker/process.h"
#include "program/worker/shared_tensors.h"

namespace fovea::program {

struct CellSettings {
  SamplingLimits limits;
  int threads = 1;
  std::int64_t memory_limit = 0;           // bytes that a cell may use; not 0 once the sweep begins
  std::uint64_t seed = 0;                  // for the order of turns
  DeviceKind device = DeviceKind::cpu;     // of all cases
  std::string timing = "cold";             // cold, hot, graph, eager or host: of a GPU
  std::map<std::string, double> ceilings;  // of this run: probe_all or probe_gpu
};

class CellBench {
 public:
  CellBench(std::vector<Contender> contenders, CellSettings settings, Machine machine);

  const std::vector<Contender>& contenders() const { return contenders_; }
  int threads() const { return settings_.threads; }
  // The timer on a GPU, which depends on the options. On a CPU each kind of worker names its own.
  std::string timer() const;
  const SpentSeconds& spent() const { return spent_; }  // in all cells
  double samples_for() const { return settings_.limits.repeat_for; }
  void sample_for(double seconds) { settings_.limits.repeat_for = seconds; }

  // Runs the contenders for which `wanted` (called with the resolved name) returns true. Returns their rows in the
  // contenders' order. Throws Interrupted.
  std::vector<Row> run(const verification::Case& c,
                       const std::function<bool(const std::string& implementation)>& wanted,
                       const std::function<void(const RoundReport&)>& after_turn);

 private:
  struct Entry {
    std::size_t contender;
    CellPlan plan;
    Row row;
    bool open = true;                          // false after a refusal or a failure
    std::size_t digest = 0;                    // of its checked answer
    std::optional<PowerMeter> meter;           // of the processor, while it is timed
    std::vector<double> clocks_mhz, powers_w;  // of a GPU, one per turn
    // For each sample, warm-up included: seconds of its launches alone, and of the call with a workspace from the
    // library's pool; NaN if not known.
    std::vector<double> launches, pooled;
    std::vector<bool> host_bound;  // for each sample: whether it may include time of the host
  };

  std::vector<Entry> entries_for(const verification::Case& c,
                                 const std::function<bool(const std::string&)>& wanted) const;
  Row blank_row(const verification::Case& c, const CellPlan& plan) const;
  std::int64_t workspaces_of(const Entry& entry) const;
  bool allocate_inputs(const verification::Case& c, std::vector<Entry>& entries);
  void fill_all_inputs(const verification::Case& c);
  void refuse_too_large(const verification::Case& c, Entry& entry) const;
  std::vector<std::vector<Entry*>> batches_of(const verification::Case& c, std::vector<Entry>& entries) const;
  static void fail_allocation(Row& row, const Error& error);
  void check(const verification::Case& c, Entry& entry, AnswerChecker& checker);
  const TensorPlaces& places_for(const Entry& entry) const;
  AnswerCheck judge_answer(const Entry& entry, AnswerChecker& checker);
  bool poison_before_timing(const verification::Case& c, Entry& entry);
  bool check_again(Entry& entry, AnswerChecker& checker);
  void time_all(const verification::Case& c, const std::vector<Entry*>& together, AnswerChecker& checker,
                const std::function<void(const RoundReport&)>& after_turn);
  SampleSource source_of(Entry& entry);
  void judge(const verification::Case& c, Entry& entry, std::vector<double> samples, const RowCeiling& ceiling) const;
  void rate(const verification::Case& c, Entry& entry, const RowCeiling& ceiling) const;
  void read_state(Entry& entry) const;
  bool times_the_host() const { return settings_.device == DeviceKind::cuda && settings_.timing == "host"; }
  bool times_single_runs() const { return settings_.timing == "cold" || settings_.timing == "hot"; }
  double fastest_honest(const verification::Case& c) const;
  WorkerProcess& worker(std::size_t contender);
  void drop_all();
  void count_crashes(const Entry& entry);

  std::vector<Contender> contenders_;
  CellSettings settings_;
  Machine machine_;
  SharedBlock inputs_;
  TensorPlaces places_, old_places_;  // the latter for an older program's workers
  EnergyCounter energy_;
  SpentSeconds spent_;
  std::vector<int> crashes_;  // per contender: consecutive cells in which it crashed
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
};

}  // namespace fovea::program
