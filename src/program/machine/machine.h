// The facts of this machine, which `info` prints and every file of records starts with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fovea::program {

struct Machine {
  std::string cpu;                             // model name
  int processors = 1;                          // of the machine
  int threads = 1;                             // fovea's default
  double max_clock_mhz = 0;                    // from the system; 0 if not known
  std::vector<std::string> isa;                // instruction sets that both CPU and system support
  std::map<std::string, std::int64_t> caches;  // "L1d" -> bytes
  std::int64_t memory_bytes = 0;               // of the machine, or of the control group if that is less
  std::int64_t available_bytes = 0;            // now
  std::vector<std::string> gpus;                     // by number; the program uses the first
  std::string system;                                // kernel and its version
  std::map<std::string, std::string> facts() const;  // the above as words; of GPUs only the first
  std::string gpu_text() const;                      // all of them: 2 x NVIDIA H200
  std::string id() const;                            // equal for files of records that may be compared
};

Machine this_machine();

// The bytes that the limit of the address space (ulimit -v) leaves to this process; the largest number without a limit.
std::int64_t free_address_space();

// The current clock, from a chain of dependent additions that take one cycle each; 0 if the latency is not known.
double measured_clock_mhz();

// An upper bound for `threads` threads, in flops/s: lanes x 2 units x 2 flops x highest clock. It assumes two units
// even if the processor has one. A faster kernel must be wrong.
double datasheet_flops(const Machine& machine, int threads, bool sixteen_bit);

// Runnable threads on the machine, averaged over the last minute. A value above 0 before a run means disturbed times.
double load_average();

std::string utc_now();  // 2026-01-31T12:00:00Z

}  // namespace fovea::program
