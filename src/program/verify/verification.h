// A run of `fovea verify`: runs cases of one operation on its implementations and shrinks failures.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "program/verify/coverage.h"
#include "program/verify/jobs.h"
#include "verification/differential.h"

namespace fovea::program {

struct VerifyOptions {
  std::int64_t cases = 2000;
  std::uint64_t seed = 1;
  std::vector<std::string> implementations;
  std::vector<std::string> drawn;  // operations to draw cases of; empty: attention
  std::string device;              // empty: the line's device, or cpu
  std::vector<std::string> passes;
  std::string problem;
  int threads = 0, jobs = 0;
  bool hostile = false, coverage = false, json = false;
};

bool names_device(const std::string& line);

// Counts of outcomes.
struct Tally {
  explicit Tally(const verification::Operation& operation) : coverage(operation) {}

  Coverage coverage;
  std::int64_t passed = 0, failed = 0, refused = 0, out_of_memory = 0;
  std::map<std::string, std::int64_t> exempt;  // by reason
  nlohmann::json failures = nlohmann::json::array();

  // No call that had memory is left to tell success from failure.
  bool judged_nothing() const { return out_of_memory > 0 && passed + failed == 0; }

  std::int64_t exempt_in_all() const {
    std::int64_t sum = 0;
    for (const auto& [reason, count] : exempt) sum += count;
    return sum;
  }

  nlohmann::json json() const {
    return {{"passed", passed},
            {"failed", failed},
            {"refused", refused},
            {"exempt", exempt_in_all()},
            {"exempt_for", exempt},
            {"out_of_memory", out_of_memory},
            {"failures", failures},
            {"coverage", coverage.json()},
            {"plan_kinds", coverage.plan_kinds_json()}};
  }
  void add(const nlohmann::json& other) {
    passed += other["passed"].get<std::int64_t>();
    failed += other["failed"].get<std::int64_t>();
    refused += other["refused"].get<std::int64_t>();
    for (const auto& [reason, count] : other["exempt_for"].items()) exempt[reason] += count.get<std::int64_t>();
    out_of_memory += other["out_of_memory"].get<std::int64_t>();
    failures.insert(failures.end(), other["failures"].begin(), other["failures"].end());
    coverage.add(other["coverage"], other["plan_kinds"]);
  }
};

class Verification {
 public:
  // `replayed`: the cases to run instead of random ones.
  Verification(const VerifyOptions& options, const verification::Operation& operation,
               const std::vector<verification::Case>& replayed);

  int run();

 private:
  void choose_implementations();
  void run_cases(std::int64_t first, std::int64_t step, SharedProgress& progress);
  verification::Trial trial_of(const verification::Case& c) const;
  verification::Case varied(verification::Case c) const;
  void check_memory(const verification::Case& c) const;
  void run_case(const verification::Case& c);
  void judge(const verification::Case& c, const verification::ImplementationFacts& implementation,
             const verification::Outcome& outcome);
  void fail(const verification::Case& c, const verification::ImplementationFacts& implementation,
            const verification::Outcome& outcome);
  void note_for_crash(const verification::Case& c, const verification::ImplementationFacts& implementation) const;
  void show_progress(const SharedProgress& progress);
  void print_summary();

  const VerifyOptions& options_;
  const verification::Operation& operation_;
  const std::vector<verification::Case>& replayed_;
  const verification::MakeDeviceCall make_device_call_;
  std::vector<verification::ImplementationFacts> implementations_;
  std::vector<std::string> skipped_;  // implementations that this machine cannot run, and why
  Tally tally_;
  bool is_part_ = false;  // one of several processes; the parent prints the summary
  bool lost_ = false;     // this process can no longer use the device
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), shown_;
};

}  // namespace fovea::program
