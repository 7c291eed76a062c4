// fovea info: what this machine has and can do, and what runs on it.
#include <fmt/format.h>

#include <cstdio>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "attention/implementation.h"
#include "core/names.h"
#include "fovea/threads.h"
#include "fovea/version.h"
#include "program/bench/table.h"
#include "program/machine/ceilings.h"
#include "program/machine/machine.h"
#include "program/verbs.h"
#include "program/vocabulary.h"
#include "source_version.h"
#include "verification/attention/support_matrix.h"

namespace fovea::program {
namespace {

using Rates = std::map<std::string, double>;

std::string build_text() {
  return fmt::format("fovea {} of {}{}, {}, {}", FOVEA_VERSION_STRING, kSourceCommit,
                     kSourceDirty ? " with changes" : "", kBuildCompiler, kBuildType);
}

// "118 GFLOP/s", "21.3 GB/s"
std::string rate_text(const std::string& name, double rate) {
  const bool bytes = name.find("bandwidth") != std::string::npos;
  return fmt::format("{:.4g} {}", rate / 1e9, bytes ? "GB/s" : "GFLOP/s");
}

std::string gpu_text(const std::map<std::string, std::string>& facts) {
  if (!facts.contains("gpu_limits")) return facts.at("gpu");
  return fmt::format("{}: {}; driver {}", facts.at("gpu"), facts.at("gpu_limits"), facts.at("gpu_driver"));
}

void print_rates(const Rates& rates) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, rate] : rates) rows.push_back({"  " + name, rate_text(name, rate)});
  std::fputs(rows.empty() ? "  none in this build\n" : aligned(rows).c_str(), stdout);
}

void print_ceilings(const Machine& machine) {
  std::printf("\nmeasured ceilings, %d thread%s\n", machine.threads, machine.threads == 1 ? "" : "s");
  print_rates(probe_all(machine.threads));
  if (const auto rates = probe_gpu(true); !rates.empty()) {
    std::printf("\nmeasured ceilings of the GPU\n");
    print_rates(rates);
  }
}

// Element types and passes of which it takes at least a part: "fp32 bf16 fp16, forward and backward".
std::string takes(const attention::Implementation& implementation) {
  // What a GPU's implementation takes follows from the GPU: without one there is nothing to ask.
  if (implementation.device == DeviceKind::cuda && !implementation.obstacle().empty()) return {};
  std::map<std::string, std::string> types_of;  // by the passes
  for (std::size_t dtype = 0; dtype < std::size(verification::kDtypes); ++dtype) {
    std::string passes;
    for (std::size_t pass = 0; pass < std::size(verification::kPasses); ++pass) {
      for (std::size_t dims = 0; dims < verification::dim_classes().size(); ++dims) {
        if (verification::support_of(implementation, {dtype, pass, 0, 0, dims}).support == verification::Support::no)
          continue;
        passes += passes.empty() ? "" : " and ";
        passes += verification::kPasses[pass] == Pass::forward ? "forward" : "backward";
        break;
      }
    }
    std::string& types = types_of[passes];
    types += (types.empty() ? "" : " ") + std::string(core::name_of(verification::kDtypes[dtype]));
  }
  std::string text;
  for (const auto& [passes, types] : types_of) {
    if (!passes.empty()) text += (text.empty() ? "" : "; ") + types + ", " + passes;
  }
  return text;
}

void print_json(const Machine& machine, bool quick) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& one : attention::implementations()) {
    const std::string unavailable = one.obstacle();
    list.push_back({{"name", one.name},
                    {"device", one.device == DeviceKind::cpu ? "cpu" : "cuda"},
                    {"automatic", one.automatic},
                    {"available", unavailable.empty()},
                    {"reason", unavailable},
                    {"takes", takes(one)}});
  }
  const nlohmann::ordered_json all{{"schema", "fovea.info/1"},
                                   {"machine", machine.id()},
                                   {"facts", machine.facts()},
                                   {"threads", machine.threads},
                                   {"clock_mhz", measured_clock_mhz()},
                                   {"ceilings", quick ? Rates{} : probe_all(machine.threads)},
                                   {"gpu_ceilings", quick ? Rates{} : probe_gpu(true)},
                                   {"source_digest", kSourceDigest},
                                   {"implementations", list},
                                   {"vocabulary", vocabulary()},
                                   {"build", build_text()}};
  std::printf("%s\n", all.dump(2).c_str());
}

void print_words(const Machine& machine, bool quick) {
  const auto facts = machine.facts();
  std::vector<std::vector<std::string>> rows{
      {"processor",
       fmt::format("{}, {} processors, {} threads used", machine.cpu, machine.processors, machine.threads)},
      {"instruction sets", facts.at("isa")},
      {"caches", facts.at("caches")},
      {"memory", fmt::format("{}, {} free", binary_size(machine.memory_bytes), binary_size(machine.available_bytes))},
      {"clock now", fmt::format("{:.0f} MHz", measured_clock_mhz())},
      {"GPU", gpu_text(facts)},
      {"system", machine.system},
      {"build", build_text()}};
  std::fputs(aligned(rows).c_str(), stdout);
  if (!quick) print_ceilings(machine);
  std::printf("\nimplementations, best first, and what they take (in detail: fovea info --matrix)\n");
  rows.clear();
  for (const auto& one : attention::implementations()) {
    const char* const ready = one.automatic ? "ready" : "ready, runs when named";
    const bool twin = one.device == DeviceKind::cuda && one.name.rfind("cuda.", 0) != 0;
    const std::string unavailable = one.obstacle();
    rows.push_back({"  " + std::string(one.name) + (twin ? " on cuda" : ""), takes(one),
                    unavailable.empty() ? ready : "not here: " + unavailable});
  }
  std::fputs(aligned(rows).c_str(), stdout);
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("info", "What this machine has, what it can do, and what runs on it");
  static bool json = false, matrix = false, quick = false;
  auto* as_json = verb->add_flag("--json", json, "print JSON");
  verb->add_flag("--quick", quick, "measure no ceilings");
  verb->add_flag("--matrix", matrix, "print docs/support.md: what each implementation takes, on any machine")
      ->excludes(as_json);
  verb->callback([&action] {
    action = [] {
      if (matrix) {
        std::fputs(verification::support_matrix_markdown().c_str(), stdout);
        return 0;
      }
      const Machine machine = this_machine();
      json ? print_json(machine, quick) : print_words(machine, quick);
      return 0;
    };
  });
}

}  // namespace fovea::program
