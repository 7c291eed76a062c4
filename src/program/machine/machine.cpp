// Reads facts of the machine from /proc and /sys; missing ones stay empty.
#include "program/machine/machine.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/binary_size.h"
#include "cuda/measure/device_facts.h"
#include "fovea/threads.h"

namespace fovea::program {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of the first "key : value" line of /proc/cpuinfo or /proc/meminfo.
std::string field_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    if (line.find_last_not_of(" \t", colon - 1) + 1 != key.size()) continue;
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::int64_t parse_bytes(const std::string& text) {  // "32K", "24576 kB", "max"
  std::istringstream stream(text);
  std::int64_t value = 0;
  char unit = ' ';
  if (!(stream >> value)) return 0;
  stream >> unit;
  return unit == 'K' || unit == 'k' ? value << 10 : unit == 'M' ? value << 20 : unit == 'G' ? value << 30 : value;
}

std::vector<std::string> instruction_sets() {
  constexpr std::array wanted{"sse2",     "avx",      "avx2",        "fma",         "f16c",
                              "avx512f",  "avx512bw", "avx512_bf16", "avx512_fp16", "amx_tile",
                              "amx_bf16", "asimd",    "bf16",        "sve",         "i8mm"};
  std::istringstream words(field_of("/proc/cpuinfo", "flags") + " " + field_of("/proc/cpuinfo", "Features"));
  std::vector<std::string> granted;
  for (std::string word; words >> word;) {
    if (std::find(wanted.begin(), wanted.end(), word) != wanted.end()) granted.push_back(word);
  }
  return granted;
}

std::map<std::string, std::int64_t> caches() {
  std::map<std::string, std::int64_t> sizes;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string level = first_line(folder + "level"), type = first_line(folder + "type");
    if (level.empty() || type == "Instruction") continue;
    sizes["L" + level + (type == "Data" ? "d" : "")] = parse_bytes(first_line(folder + "size"));
  }
  return sizes;
}

std::vector<std::string> gpus() {
  std::vector<std::string> names;
  for (const auto& device : cuda::device_facts()) names.push_back(device.name);
  if (!names.empty()) return names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    const std::string name = field_of((entry.path() / "information").c_str(), "Model");
    names.push_back(name.empty() ? "NVIDIA" : name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::int64_t control_group_limit() {
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (const std::int64_t limit = parse_bytes(first_line(path)); limit > 0) return limit;
  }
  return 0;
}

}  // namespace

std::int64_t free_address_space() {
  rlimit limit{};
  constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  std::int64_t pages = 0;
  std::istringstream(first_line("/proc/self/statm")) >> pages;
  return std::max<std::int64_t>(static_cast<std::int64_t>(limit.rlim_cur) - pages * sysconf(_SC_PAGESIZE), 0);
}

Machine this_machine() {
  Machine m;
  m.cpu = field_of("/proc/cpuinfo", "model name");
  if (m.cpu.empty()) m.cpu = "unknown processor";
  m.processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  m.threads = default_threads();
  m.max_clock_mhz =
      static_cast<double>(parse_bytes(first_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"))) / 1e3;
  m.isa = instruction_sets();
  m.caches = caches();
  m.memory_bytes = parse_bytes(field_of("/proc/meminfo", "MemTotal"));
  m.available_bytes = parse_bytes(field_of("/proc/meminfo", "MemAvailable"));
  if (const std::int64_t limit = control_group_limit(); limit > 0 && limit < m.memory_bytes) {
    m.memory_bytes = limit;
    m.available_bytes = std::min(m.available_bytes, limit);
  }
  m.gpus = gpus();
  utsname names{};
  if (uname(&names) == 0) {
    const std::string release = names.release;  // after the first dash come the distributor's words
    m.system = std::string(names.sysname) + " " + release.substr(0, release.find('-')) + " " + names.machine;
  }
  return m;
}

std::string Machine::id() const {
  std::string text = fmt::format("{}, {} processors, {} GiB", cpu, processors, (memory_bytes + (1 << 29)) >> 30);
  return gpus.empty() ? text : text + ", " + gpu_text();
}

std::string Machine::gpu_text() const {
  std::map<std::string, int> counts;
  for (const std::string& gpu : gpus) ++counts[gpu];
  std::string text;
  for (const auto& [gpu, count] : counts) {
    if (!text.empty()) text += ", ";
    text += count == 1 ? gpu : fmt::format("{} x {}", count, gpu);
  }
  return text;
}

std::map<std::string, std::string> Machine::facts() const {
  std::map<std::string, std::string> facts{{"cpu", cpu},
                                           {"processors", std::to_string(processors)},
                                           {"isa", fmt::format("{}", fmt::join(isa, " "))},
                                           {"memory", core::binary_size(memory_bytes)},
                                           {"system", system},
                                           {"gpu", gpus.empty() ? "none" : gpus.front()}};
  std::string sizes;
  for (const auto& [name, bytes] : caches) sizes += (sizes.empty() ? "" : ", ") + name + " " + core::binary_size(bytes);
  facts["caches"] = sizes;
  if (const auto devices = cuda::device_facts(); !devices.empty()) {
    const auto& d = devices.front();
    facts["gpu_limits"] = fmt::format("sm_{}{}, {} SMs, {} memory, {} L2, {} shared, {:.0f} MHz", d.major, d.minor,
                                      d.sm_count, core::binary_size(d.memory_bytes), core::binary_size(d.l2_bytes),
                                      core::binary_size(d.shared_bytes), d.max_clock_mhz);
    facts["gpu_driver"] = cuda::driver_text();
  }
  return facts;
}

double measured_clock_mhz() {
#if defined(__x86_64__)
  constexpr int kSteps = 5000, kAdditions = 64;
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::uint64_t sum = 1, step = static_cast<std::uint64_t>(attempt) + 3;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i) asm volatile(".rept 64\n\tadd %1, %0\n\t.endr" : "+r"(sum) : "r"(step));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, double{kSteps} * kAdditions / took.count() / 1e6);
  }
  return best;
#else
  return 0;
#endif
}

double datasheet_flops(const Machine& machine, int threads, bool sixteen_bit) {
  const auto has = [&machine](std::string_view name) {
    return std::find(machine.isa.begin(), machine.isa.end(), name) != machine.isa.end();
  };
  double per_cycle = has("avx512f") ? 64 : has("avx2") || has("avx") ? 32 : 16;
  if (sixteen_bit && has("avx512_bf16")) per_cycle = 128;
  if (sixteen_bit && has("amx_bf16")) per_cycle = 2048;
  // If the system hides its highest clock, it may still exceed the measured one.
  const double clock = std::max(machine.max_clock_mhz, 1.25 * measured_clock_mhz());
  return clock > 0 ? per_cycle * clock * 1e6 * std::min(threads, machine.processors) : 0;
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace fovea::program
