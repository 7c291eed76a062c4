// Counters of the out-of-memory killer: memory.events (control groups v2), memory.oom_control (v1), /proc/vmstat.
#include "program/machine/oom_kills.h"

#include <fstream>
#include <optional>

namespace fovea::program {
namespace {

// The number after the word `oom_kill` in a file of "word number" lines.
std::optional<std::int64_t> counted_in(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  for (std::int64_t value = 0; file >> word >> value;) {
    if (word == "oom_kill") return value;
  }
  return std::nullopt;
}

// "0::/user.slice" is a group of v2, "9:memory:/user.slice" is one of v1. Inside a container the group may be at the
// root.
std::optional<std::int64_t> counted_for_group(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    for (const std::string& group : {line.substr(second + 1), std::string()}) {
      const auto count =
          counted_in(root + "/sys/fs/cgroup" +
                     (controllers.empty() ? group + "/memory.events" : "/memory" + group + "/memory.oom_control"));
      if (count) return count;
    }
  }
  return std::nullopt;
}

}  // namespace

std::int64_t oom_kills(const std::string& root) {
  if (const auto group = counted_for_group(root)) return *group;
  return counted_in(root + "/proc/vmstat").value_or(0);
}

}  // namespace fovea::program
