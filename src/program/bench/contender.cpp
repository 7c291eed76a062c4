// From the words of the command line to commands of workers, and from a case to a plan.
#include "program/bench/contender.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "attention/implementation.h"
#include "core/check.h"
#include "fovea/attention.h"
#include "program/worker/shared_tensors.h"
#include "source_version.h"

namespace fovea::program {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTorchRows[] = {"torch.eager", "torch.compile", "torch.sdpa"};
constexpr std::string_view kTorchGpuRows[] = {"torch.flash", "torch.cudnn", "torch.efficient",
                                              "torch.math",  "torch.eager", "torch.compile"};
constexpr std::string_view kWithoutScores[] = {"torch.flash", "torch.cudnn", "torch.efficient"};

// The Python side: beside an installed program, else in the sources it was built from.
std::string worker_script() {
  if (const char* folder = std::getenv("FOVEA_PYTHON_FOLDER")) return std::string(folder) + "/bench/fovea_worker.py";
  std::error_code none;
  const fs::path installed =
      fs::read_symlink("/proc/self/exe", none).parent_path().parent_path() / "share/fovea/python/bench/fovea_worker.py";
  return fs::exists(installed, none) ? installed.string()
                                     : std::string(kSourceFolder) + "/python/bench/fovea_worker.py";
}

[[noreturn]] void refuse(const std::string& argument, const std::string& problem, const std::string& got,
                         const std::string& wanted, const std::string& hint = {}) {
  core::fail({.status = Status::invalid_argument,
              .call = "bench",
              .argument = argument,
              .problem = problem,
              .got = got,
              .wanted = wanted,
              .hint = hint});
}

void check_file(const std::string& name, const std::string& path) {
  std::error_code none;
  if (!fs::exists(path, none)) refuse("--impl", "no such file", name, "the path of a file that exists");
}

Contender contender_of(const std::string& name, const std::string& python) {
  const std::string self = "/proc/self/exe";
  if (const std::size_t at = name.rfind(".so:"); at != std::string::npos) {
    check_file(name, name.substr(0, at + 3));
    return {name, {self, "worker", "--kernel", fs::absolute(name.substr(0, at + 3)).string() + name.substr(at + 3)}};
  }
  if (const std::size_t at = name.rfind(".py:"); at != std::string::npos) {
    check_file(name, name.substr(0, at + 3));
    return {name, {python, worker_script(), fs::absolute(name.substr(0, at + 3)).string() + name.substr(at + 3)}};
  }
  const auto names = attention::known_names();
  if (std::find(names.begin(), names.end(), name) != names.end())
    return {name, {self, "worker", "--kernel", name}, true};
  const std::string near = core::nearest_word(name, names);
  std::string list;
  for (const auto& one : names) list += (list.empty() ? "" : ", ") + one;
  refuse("--impl", "no implementation of this name", name.empty() ? "an empty name" : name,
         "one of " + list + ", or ./lib.so:symbol, or kernel.py:function",
         near.empty() ? "" : "did you mean `" + near + "`?");
}

// The problem of one pass of a case, as the worker will pose it.
AttentionProblem pass_problem(const verification::AttentionCase& c, Pass pass, bool saved, bool reproducible = true) {
  AttentionProblem p = c.problem;
  p.reproducible = reproducible;
  p.pass = pass;
  p.saved_state = saved;
  return p;
}

std::string refusals_of(const Explanation& explanation) {
  std::string text;
  for (const auto& step : explanation.walk) text += (text.empty() ? "" : "; ") + step.name + ": " + step.reason;
  return text;
}

std::vector<std::string> torch_rows(DeviceKind device) {
  if (device == DeviceKind::cuda) return {std::begin(kTorchGpuRows), std::end(kTorchGpuRows)};
  return {std::begin(kTorchRows), std::end(kTorchRows)};
}

}  // namespace

std::vector<Contender> contenders_of(const std::vector<std::string>& names, const std::vector<std::string>& peers,
                                     const std::string& python, DeviceKind device) {
  std::vector<Contender> result;
  const auto add = [&result](Contender contender) {
    for (const auto& other : result) {
      if (other.name == contender.name) refuse("--impl", "named twice", contender.name, "each name once");
    }
    result.push_back(std::move(contender));
  };
  for (const auto& name : names) add(contender_of(name, python));
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
      refuse("--with", "unknown peer", peer.empty() ? "an empty name" : peer,
             fmt::format("torch, {}, onnxruntime", fmt::join(rows, ", ")));
    }
  }
  return result;
}

CellPlan plan_cell(const Contender& contender, const verification::AttentionCase& c) {
  if (!contender.ours) return {.implementation = contender.name};
  CellPlan plan{.implementation = contender.name};
  const Pass first = c.pass == verification::CasePass::bwd ? Pass::backward : Pass::forward;
  const bool reproducible = attention::promises_reproducibility(contender.name);
  const Explanation walk = explain(pass_problem(c, first, false, reproducible), contender.name);
  if (walk.chosen.empty()) return plan.refusal = refusals_of(walk), plan;
  plan.implementation = walk.chosen;
  const bool trains = c.pass != verification::CasePass::fwd;
  const Explanation plain = explain(pass_problem(c, Pass::forward, false, reproducible), plan.implementation);
  const bool saves = trains && plain.saved_bytes > 0;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::backward && !trains) break;
    const Explanation one = explain(pass_problem(c, pass, saves, reproducible), plan.implementation);
    if (one.chosen.empty()) return plan.refusal = refusals_of(one), plan;
    plan.workspace_bytes = std::max(plan.workspace_bytes, one.workspace_bytes);
    if (pass == Pass::forward && saves) plan.saved_bytes = one.saved_bytes;
  }
  return plan;
}

std::int64_t forward_tensor_bytes(const verification::AttentionCase& c) {
  const TensorPlaces places = places_of(c);
  std::int64_t sum = 0;
  for (const Name name : {Name::q, Name::k, Name::v, Name::out, Name::lse}) sum += places[name].bytes();
  return sum;
}

std::int64_t tensor_bytes(const verification::AttentionCase& c) {
  std::int64_t sum = 0;
  for (const auto& place : places_of(c).places) sum += place.present ? place.bytes() : 0;
  return sum;
}

namespace {

template <class Count>
double sum_over_passes(const verification::AttentionCase& c, Count count) {
  double sum = 0;
  if (c.pass != verification::CasePass::bwd) sum += count(pass_problem(c, Pass::forward, false));
  if (c.pass != verification::CasePass::fwd) sum += count(pass_problem(c, Pass::backward, false));
  return sum;
}

}  // namespace

double flops_of(const verification::AttentionCase& c) {
  return sum_over_passes(c, [](const AttentionProblem& p) { return flops(p); });
}
double bytes_of(const verification::AttentionCase& c) {
  return sum_over_passes(c, [](const AttentionProblem& p) { return bytes(p); });
}

}  // namespace fovea::program
