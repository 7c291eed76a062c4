// Splits long work into processes, so that a crash ends one part and not the run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

namespace fovea::program {

// Counters in memory that all parts share; they never decrease.
struct SharedProgress {
  std::atomic<std::int64_t> done, passed, failed;
};

// Runs part(index, progress) for every index in [0, count), each in a forked process, and returns their results; null
// for a part that crashed. Calls `show` a few times per second. An interrupt of this process ends all parts.
std::vector<nlohmann::json> run_in_processes(int count,
                                             const std::function<nlohmann::json(int index, SharedProgress&)>& part,
                                             const std::function<void(const SharedProgress&)>& show);

}  // namespace fovea::program
