// Reads the affinity with sched_getaffinity while the library is loaded, and the quota from the files of control
// groups.
#include "core/processors.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/environment.h"
#include "core/never_destroyed.h"
#include "fovea/threads.h"

namespace fovea::core {
namespace {

// Processors granted by quota / period; nullopt if unlimited or unreadable.
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

// The smallest quota of a group and all groups above it. A container may see its own group at the mount's root while
// its membership names the host's path. So the walk ends at the root even if directories in between do not exist.
template <class Quota>
std::optional<double> smallest_quota(const std::string& mount, std::string path, Quota quota_of) {
  std::optional<double> least;
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    if (const auto quota = quota_of(mount + path)) least = std::min(least.value_or(*quota), *quota);
    if (path.empty()) return least;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

struct Affinity {
  std::vector<std::uint64_t> mask;  // empty if it could not be read
  int processors = 1;
};

Affinity read_affinity() {
  // Machines with more processors than cpu_set_t holds need a larger mask.
  for (std::size_t words = 16; words <= 1 << 14; words *= 4) {
    std::vector<std::uint64_t> mask(words);
    auto* const set = reinterpret_cast<cpu_set_t*>(mask.data());
    const std::size_t bytes = words * sizeof(std::uint64_t);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    if (count > 0) return {std::move(mask), count};
  }
  return {};
}

// Read while the library is loaded: the thread that calls first may be pinned to one processor.
const Affinity& affinity() {
  static const auto& at_load = never_destroyed<Affinity>(read_affinity());
  return at_load;
}

[[maybe_unused]] const Affinity& affinity_at_load = affinity();

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
      quota = smallest_quota(mount, path, quota_v2);
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      quota = smallest_quota(mount + "/cpu", path, quota_v1);
      if (!quota) quota = smallest_quota(mount + "/" + controllers, path, quota_v1);
    }
    if (quota) least = std::min(least.value_or(*quota), *quota);
  }
  return least ? std::max(1, static_cast<int>(*least)) : 0;
}

int available_processors() {
  static const int count = [] {
    const int granted = affinity().processors, quota = control_group_processors("/proc/self/cgroup", "/sys/fs/cgroup");
    return quota > 0 ? std::min(granted, quota) : granted;
  }();
  return count;
}

void run_on_all_processors() {
  const auto& mask = affinity().mask;
  if (!mask.empty())
    sched_setaffinity(0, mask.size() * sizeof mask[0], reinterpret_cast<const cpu_set_t*>(mask.data()));
}

int thread_count_of(std::string_view text) {
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc{} || end != text.data() + text.size() || threads < 1 || threads > kMaxThreads) {
    fail({.status = Status::invalid_argument,
          .call = "default_threads",
          .argument = "FOVEA_THREADS",
          .problem = "not a thread count in the environment",
          .got = std::string(text),
          .wanted = "a whole number from 1 to " + std::to_string(kMaxThreads),
          .hint = "unset it for the processors that the process may use"});
  }
  return threads;
}

}  // namespace fovea::core

namespace fovea {

int default_threads() {
  const std::string_view text = core::environment("FOVEA_THREADS");
  return text.empty() ? std::min(core::available_processors(), kMaxThreads) : core::thread_count_of(text);
}

}  // namespace fovea
