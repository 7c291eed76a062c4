// Cutting long work on one machine into processes, so that a crash ends one part and not the run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

namespace fovea::program {

// Counters in memory that all parts share; only ever raised.
struct SharedProgress {
  std::atomic<std::int64_t> done, passed, failed;
};

// Runs part(index, progress) for every index in [0, count), each in a process forked from this one, and gives back what
// each returned; null for one that crashed. `show` is called a few times a second. An interrupt of this process ends
// them all.
std::vector<nlohmann::json> run_in_processes(int count,
                                             const std::function<nlohmann::json(int index, SharedProgress&)>& part,
                                             const std::function<void(const SharedProgress&)>& show);

}  // namespace fovea::program
