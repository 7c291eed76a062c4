// Affinity by sched_getaffinity, quota by the files of control groups.
#include "core/processors.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

#include "core/check.h"
#include "fovea/threads.h"

namespace fovea::core {
namespace {

// Processors granted by quota / period; nothing if unlimited or unreadable.
std::optional<double> quota_v2(const std::string& directory) {
  std::ifstream file(directory + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return std::nullopt;
  return std::strtod(quota.c_str(), nullptr) / period;
}

std::optional<double> quota_v1(const std::string& directory) {
  std::ifstream quota_file(directory + "/cpu.cfs_quota_us"), period_file(directory + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// The tightest quota of a group and all groups above it. A container may see its own group at the mount's root although
// its membership names the host's path, so the walk ends at the root whatever exists in between.
template <class Quota>
std::optional<double> tightest(const std::string& mount, std::string path, Quota quota_of) {
  std::optional<double> least;
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    if (const auto quota = quota_of(mount + path)) least = std::min(least.value_or(*quota), *quota);
    if (path.empty()) return least;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

int affinity_processors() {
  // The mask of a machine with more processors than cpu_set_t holds needs a larger set.
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(capacity));
    if (set == nullptr) return 1;
    const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
    const int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return 1;
}

}  // namespace

int control_group_processors(const std::string& membership, const std::string& mount) {
  std::ifstream file(membership);
  std::optional<double> least;
  for (std::string line; std::getline(file, line);) {  // hierarchy:controllers:path
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    std::optional<double> quota;
    if (controllers.empty()) {
      quota = tightest(mount, path, quota_v2);
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      quota = tightest(mount + "/cpu", path, quota_v1);
      if (!quota) quota = tightest(mount + "/" + controllers, path, quota_v1);
    }
    if (quota) least = std::min(least.value_or(*quota), *quota);
  }
  return least ? std::max(1, static_cast<int>(*least)) : 0;
}

int available_processors() {
  static const int count = [] {
    const int affinity = affinity_processors(), quota = control_group_processors("/proc/self/cgroup", "/sys/fs/cgroup");
    return quota > 0 ? std::min(affinity, quota) : affinity;
  }();
  return count;
}

}  // namespace fovea::core

namespace fovea {

int default_threads() {
  const char* word = std::getenv("FOVEA_THREADS");
  if (word == nullptr || *word == '\0') return core::available_processors();
  const std::string_view text(word);
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc{} || end != text.data() + text.size() || threads < 1) {
    core::fail({.status = Status::invalid_argument,
                .call = "default_threads",
                .argument = "FOVEA_THREADS",
                .problem = "not a thread count in the environment",
                .got = word,
                .wanted = "a whole number of 1 or more",
                .hint = "unset it for the processors that the process may use"});
  }
  return threads;
}

}  // namespace fovea
