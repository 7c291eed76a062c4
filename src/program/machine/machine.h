// What this machine is: the facts that `info` prints and that every file of records starts with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fovea::program {

struct Machine {
  std::string cpu;                             // model name
  int processors = 1;                          // that the machine has
  int threads = 1;                             // that fovea uses by default
  double max_clock_mhz = 0;                    // as the system tells it; 0 if it does not
  std::vector<std::string> isa;                // the instruction sets of interest that CPU and system grant
  std::map<std::string, std::int64_t> caches;  // "L1d" -> bytes
  std::int64_t memory_bytes = 0;               // of the machine, or of the control group if that is less
  std::int64_t available_bytes = 0;            // now
  std::vector<std::string> gpus;
  std::string system;                                // kernel and its version
  std::map<std::string, std::string> facts() const;  // all of the above as words
  std::string id() const;                            // what must agree for two files to be comparable
};

Machine this_machine();

// The clock while it is measured: a chain of dependent additions takes one cycle each. 0 where that is unknown.
double measured_clock_mhz();

// An upper bound for the multiply-adds of `threads` threads, in flops/s: lanes x two units x two x highest clock,
// whatever the processor's real number of units. No honest kernel is faster.
double datasheet_flops(const Machine& machine, int threads, bool sixteen_bit);

// Runnable threads on the machine, averaged over the last minute: above 0 before a run means disturbed times.
double load_average();

std::string utc_now();  // 2026-01-31T12:00:00Z

// "24.1 GiB", "512 MiB": for people.
std::string binary_size(std::int64_t bytes);

}  // namespace fovea::program
