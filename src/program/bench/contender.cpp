// Turns names of the command line into worker commands, and a case into a plan.
#include "program/bench/contender.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "core/check.h"
#include "core/problem_line.h"
#include "program/command_line.h"
#include "program/flash.h"
#include "program/worker/shared_tensors.h"
#include "program/worker/timed_call.h"
#include "source_version.h"

namespace fovea::program {
namespace {

namespace fs = std::filesystem;
using verification::Case;
using verification::CasePlan;

constexpr std::string_view kTorchRows[] = {"torch.eager", "torch.compile", "torch.sdpa"};
constexpr std::string_view kTorchGpuRows[] = {"torch.flash", "torch.cudnn", "torch.efficient",
                                              "torch.math",  "torch.eager", "torch.compile"};
constexpr std::string_view kWithoutScores[] = {"torch.flash", "torch.cudnn", "torch.efficient"};

std::string worker_script() { return python_script("fovea_worker.py"); }

[[noreturn]] void refuse(const std::string& argument, const std::string& problem, const std::string& got,
                         const std::string& wanted, const std::string& hint = {}) {
  core::fail({.status = Status::invalid_argument,
              .argument = argument,
              .problem = problem,
              .got = got,
              .wanted = wanted,
              .hint = hint});
}

// "./lib.so:symbol", "lib.so.1:symbol", "kernel.py:function"
bool names_a_file(const std::string& name) {
  return is_foreign(name) || name.substr(0, std::min(name.rfind(':'), name.size())).ends_with(".py");
}
std::string file_of(const std::string& name) { return name.substr(0, name.rfind(':')); }

void check_file(const std::string& name, const std::string& path) {
  std::error_code none;
  if (!fs::exists(path, none)) refuse("--impl", "no such file", name, "the path of a file that exists");
}

Contender contender_of(const std::string& name, const std::string& python, const Operations& operations) {
  const std::string self = "/proc/self/exe";
  if (names_a_file(name)) {
    const std::string file = file_of(name), path = fs::absolute(file).string() + name.substr(file.size());
    check_file(name, file);
    if (is_foreign(name)) return {name, {self, "worker", "--kernel", path}};
    return {name, {python, worker_script(), path}};
  }
  const auto names = known_names(operations);
  if (std::find(names.begin(), names.end(), name) != names.end())
    return {name, {self, "worker", "--kernel", name}, true};
  const std::string near = core::nearest_word(name, names);
  std::string list;
  for (const auto& one : names) list += (list.empty() ? "" : ", ") + one;
  refuse("--impl", "no implementation of this name", name.empty() ? "an empty name" : name,
         "one of " + list + ", or ./lib.so:symbol, or kernel.py:function",
         near.empty() ? "" : "did you mean `" + near + "`?");
}

std::vector<std::string> torch_rows(DeviceKind device) {
  if (device == DeviceKind::cuda) return {std::begin(kTorchGpuRows), std::end(kTorchGpuRows)};
  return {std::begin(kTorchRows), std::end(kTorchRows)};
}

}  // namespace

std::string python_script(const std::string& name) {
  if (const char* folder = std::getenv("FOVEA_PYTHON_FOLDER")) return std::string(folder) + "/fovea_bench/" + name;
  std::error_code none;
  const fs::path installed =
      fs::read_symlink("/proc/self/exe", none).parent_path().parent_path() / "share/fovea/python/fovea_bench" / name;
  return fs::exists(installed, none) ? installed.string() : std::string(kSourceFolder) + "/python/fovea_bench/" + name;
}

Operations operations_of(const std::vector<Case>& cases) {
  Operations operations;
  for (const Case& c : cases) {
    if (std::find(operations.begin(), operations.end(), c.operation) == operations.end())
      operations.push_back(c.operation);
  }
  return operations;
}

std::vector<std::string> known_names(const Operations& operations) {
  std::vector<std::string> names{kFlash};
  for (const verification::Operation* operation : operations) {
    for (const auto& one : operation->implementations()) {
      if (std::find(names.begin(), names.end(), one.name) == names.end()) names.push_back(one.name);
    }
  }
  return names;
}

// The first words that are a file together, if the first alone is nothing: a path may hold commas.
std::size_t words_of_file(const std::vector<std::string>& words, std::size_t first) {
  std::string joined = words[first];
  for (std::size_t n = first + 1; n < words.size() && !names_a_file(words[first]); ++n) {
    joined += "," + words[n];
    std::error_code none;
    if (names_a_file(joined) && fs::exists(file_of(joined), none)) return n - first + 1;
  }
  return 1;
}

std::vector<std::string> implementation_names(const std::string& list) {
  std::vector<std::string> words, names;
  for (std::size_t start = 0; !list.empty() && start <= list.size();) {
    const std::size_t comma = std::min(list.find(',', start), list.size());
    words.push_back(list.substr(start, comma - start));
    start = comma + 1;
  }
  for (std::size_t n = 0; n < words.size();) {
    const std::size_t count = words_of_file(words, n);
    std::string& name = names.emplace_back(words[n]);
    for (std::size_t more = 1; more < count; ++more) name += "," + words[n + more];
    n += count;
  }
  return names;
}

std::vector<Contender> contenders_of(const std::vector<std::string>& names, const std::vector<std::string>& peers,
                                     const std::string& python, DeviceKind device, const Operations& operations) {
  std::vector<Contender> result;
  const auto add = [&result](Contender contender) {
    for (const auto& other : result) {
      if (other.name == contender.name) refuse("--impl", "named twice", contender.name, "each name once");
    }
    result.push_back(std::move(contender));
  };
  for (const auto& name : names) add(contender_of(name, python, operations));
  for (const auto& peer : peers) {
    const auto add_peer = [&](std::string_view row) {
      const bool holds =
          std::find(std::begin(kWithoutScores), std::end(kWithoutScores), row) == std::end(kWithoutScores);
      add({std::string(row), {python, worker_script(), "peers:" + std::string(row)}, false, holds});
    };
    const std::vector<std::string> rows = torch_rows(device);
    if (peer == "torch") {
      for (const auto& row : rows) add_peer(row);
    } else if (peer == "onnxruntime" || std::find(rows.begin(), rows.end(), peer) != rows.end()) {
      add_peer(peer);
    } else {
      std::vector<std::string> known{"torch", "onnxruntime"};
      known.insert(known.begin() + 1, rows.begin(), rows.end());
      const std::string near = core::nearest_word(peer, known);
      refuse("--with", "unknown peer", peer.empty() ? "an empty name" : peer, fmt::format("{}", fmt::join(known, ", ")),
             near.empty() ? "" : "did you mean `" + near + "`?");
    }
  }
  return result;
}

OldProgram::OldProgram(const std::string& the_path) : path(the_path) {
  std::error_code none;
  if (!fs::exists(path, none)) refuse("--against", "no such file", path, "the path of an older fovea");
  path = fs::absolute(path).string();
  std::FILE* const asked = popen((shell_line({path, "--version"}) + " 2>/dev/null").c_str(), "r");
  char line[64];
  while (asked != nullptr && std::fgets(line, sizeof line, asked) != nullptr) version += line;
  const bool answered = asked != nullptr && pclose(asked) == 0;
  while (!version.empty() && version.back() == '\n') version.pop_back();
  const bool is_version = !version.empty() && version.front() >= '0' && version.front() <= '9';
  if (!answered || !is_version) refuse("--against", "it does not tell its version", path, "an older fovea");
}

std::vector<Contender> with_old(std::vector<Contender> contenders, const OldProgram& old) {
  const std::size_t count = contenders.size();
  for (std::size_t n = 0; n < count; ++n) {
    if (!contenders[n].ours || !contenders[n].saves) continue;
    Contender twin = contenders[n];
    twin.of_old = twin.name;
    twin.old_version = old.version;
    twin.name += kOldSuffix;
    twin.command = {old.path, "worker", "--kernel", twin.of_old};
    contenders.push_back(std::move(twin));
  }
  if (contenders.size() == count) refuse("--against", "nothing here runs in it", old.path, "an --impl of the library");
  return contenders;
}

std::vector<Contender> with_no_saved(std::vector<Contender> contenders, const std::vector<Case>& cases) {
  const std::size_t count = contenders.size();
  for (std::size_t n = 0; n < count; ++n) {
    const bool saves = std::any_of(cases.begin(), cases.end(), [&](const Case& c) {
      return contenders[n].ours && c.backwards() && plan_cell(contenders[n], c).saved_bytes > 0;
    });
    if (!saves) continue;
    Contender twin = contenders[n];
    twin.saves = false;
    twin.name += kNoSavedSuffix;
    contenders.push_back(std::move(twin));
  }
  if (contenders.size() == count)
    refuse("--no-saved", "no backward here reads saved state", fmt::format("{} cases", cases.size()),
           "pass=bwd or e2e, and an --impl that saves state, such as naive");
  return contenders;
}

// The older program chooses for itself. Its memory is estimated with this program's plan.
CellPlan plan_old(const Contender& contender, const Case& c) {
  const CasePlan plan =
      c.operation->plan(c.backwards() ? c.with("pass", "e2e") : c, asked_of_library(contender.of_old));
  return {contender.name, contender.of_old, "", plan.workspace_bytes, plan.saved_bytes};
}

CellPlan plan_cell(const Contender& contender, const Case& c) {
  if (!contender.of_old.empty()) return plan_old(contender, c);
  CellPlan cell{.implementation = contender.name, .asked = contender.name};
  if (!contender.ours) return cell;
  const std::string name = contender.name.substr(0, contender.name.find(kNoSavedSuffix));
  const std::vector<std::string> names = known_names({c.operation});
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    cell.refusal = "op=" + std::string(c.operation->name()) + " has no implementation of this name";
    return cell;
  }
  if (!contender.saves && !c.backwards()) {
    cell.refusal = "only backward reads saved state";
    return cell;
  }
  CasePlan plan = c.operation->plan(c, asked_of_library(name));
  // Backward always runs after a forward, even if only backward is timed.
  if (!c.forwards() && plan.refusal().empty()) plan = c.operation->plan(c.with("pass", "e2e"), plan.implementation);
  cell.refusal = plan.refusal();
  if (!cell.refusal.empty()) return cell;
  if (contender.saves) return {plan.implementation, plan.implementation, "", plan.workspace_bytes, plan.saved_bytes};
  if (plan.saved_bytes == 0) {
    cell.refusal = plan.implementation + " saves nothing here";
    return cell;
  }
  const CasePlan unsaved = c.operation->plan(without_saved_state(c.with("pass", "e2e")), plan.implementation);
  return {plan.implementation + std::string(kNoSavedSuffix), plan.implementation, unsaved.refusal(),
          unsaved.workspace_bytes, unsaved.saved_bytes};
}

std::int64_t tensor_bytes(const Case& c) {
  std::int64_t sum = 0;
  for (const auto& place : places_of(c).places) sum += place.bytes();
  return sum;
}

std::int64_t forward_tensor_bytes(const Case& c) { return tensor_bytes(c.with("pass", "fwd")); }

}  // namespace fovea::program
