// fovea info: prints the machine's facts and ceilings, and the implementations that run on it.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "core/binary_size.h"
#include "core/names.h"
#include "fovea/threads.h"
#include "fovea/version.h"
#include "program/bench/table.h"
#include "program/machine/ceilings.h"
#include "program/machine/machine.h"
#include "program/terminal_text.h"
#include "program/verbs.h"
#include "program/vocabulary.h"
#include "source_version.h"
#include "verification/operation.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;
using Rates = std::map<std::string, double>;
using verification::ImplementationFacts;
using verification::Operation;

std::string build_text() {
  return fmt::format("fovea {} of {}{}, {}, {}", FOVEA_VERSION_STRING, kSourceCommit,
                     kSourceDirty ? " with changes" : "", kBuildCompiler, kBuildType);
}

// "118 GFLOP/s", "21.3 GB/s"
std::string rate_text(const std::string& name, double rate) {
  const bool bytes = name.find("bandwidth") != std::string::npos;
  return fmt::format("{:.4g} {}", rate / 1e9, bytes ? "GB/s" : "GFLOP/s");
}

std::string gpu_text(const Machine& machine) {
  const auto facts = machine.facts();
  if (!facts.contains("gpu_limits")) return facts.at("gpu");
  return fmt::format("{}: {}; driver {}", machine.gpu_text(), facts.at("gpu_limits"), facts.at("gpu_driver"));
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

// Whether it takes some of the cells with this element type and pass.
bool takes_some(const Operation& operation, const ImplementationFacts& implementation, const std::string& dtype,
                const std::string& pass) {
  const std::vector<verification::Axis> axes = operation.axes();
  verification::AxisCell cell(axes.size(), 0);
  const auto is_wanted = [&] {
    for (std::size_t n = 0; n < axes.size(); ++n) {
      const std::string& at = axes[n].classes[cell[n]];
      if ((axes[n].name == "dtype" && at != dtype) || (axes[n].name == "pass" && at != pass)) return false;
    }
    return true;
  };
  for (std::size_t n = 0; n < axes.size();) {
    if (n == 0 && is_wanted() && operation.support_of(implementation, cell).support != verification::Support::no)
      return true;
    if (++cell[n] < axes[n].classes.size()) {
      n = 0;
    } else {
      cell[n++] = 0;
    }
  }
  return false;
}

// The element types and passes of which it takes some cells: "fp32 bf16 fp16, forward and backward".
std::string takes(const Operation& operation, const ImplementationFacts& implementation) {
  // A GPU implementation's answers depend on the GPU, so without one there are none.
  if (implementation.device == DeviceKind::cuda && !implementation.unavailable.empty()) return {};
  std::map<std::string, std::string> types_of;  // by the passes
  for (const std::string_view dtype : operation.keys().find("dtype")->words) {
    std::string passes;
    for (const char* pass : {"forward", "backward"}) {
      if (takes_some(operation, implementation, std::string(dtype), pass))
        passes += (passes.empty() ? "" : " and ") + std::string(pass);
    }
    std::string& types = types_of[passes];
    types += (types.empty() ? "" : " ") + std::string(dtype);
  }
  std::string text;
  for (const auto& [passes, types] : types_of) {
    if (!passes.empty()) text += (text.empty() ? "" : "; ") + types + ", " + passes;
  }
  return text;
}

Json implementations_json() {
  Json list = Json::array();
  for (const Operation* operation : verification::operations()) {
    for (const ImplementationFacts& one : operation->implementations()) {
      list.push_back({{"operation", operation->name()},
                      {"name", one.name},
                      {"device", core::name_of(one.device)},
                      {"automatic", one.automatic},
                      {"available", one.unavailable.empty()},
                      {"reason", one.unavailable},
                      {"takes", takes(*operation, one)}});
    }
  }
  return list;
}

void print_json(const Machine& machine, bool quick) {
  const Json all{{"schema", "fovea.info/1"},
                 {"machine", machine.id()},
                 {"facts", machine.facts()},
                 {"threads", machine.threads},
                 {"clock_mhz", measured_clock_mhz()},
                 {"ceilings", quick ? Rates{} : probe_all(machine.threads)},
                 {"gpu_ceilings", quick ? Rates{} : probe_gpu(true)},
                 {"source_digest", kSourceDigest},
                 {"operations", operation_words()},
                 {"implementations", implementations_json()},
                 {"vocabulary", vocabulary()},
                 {"build", build_text()}};
  std::printf("%s\n", all.dump(2).c_str());
}

void print_implementations(const Operation& operation) {
  std::printf("\nimplementations of %s, in the order tried (details: fovea info --matrix)\n",
              std::string(operation.name()).c_str());
  std::vector<std::vector<std::string>> rows;
  for (const ImplementationFacts& one : operation.implementations()) {
    const char* const ready = one.automatic ? "ready" : "only if named";
    const bool twin = one.device == DeviceKind::cuda && one.name.rfind("cuda.", 0) != 0;
    rows.push_back({"  " + one.name + (twin ? " on cuda" : ""), takes(operation, one),
                    one.unavailable.empty() ? ready : "not here: " + one.unavailable});
  }
  std::fputs(aligned(rows).c_str(), stdout);
}

void print_words(const Machine& machine, bool quick) {
  const auto facts = machine.facts();
  std::vector<std::vector<std::string>> rows{
      {"processor",
       fmt::format("{}, {} processors, {} threads used", machine.cpu, machine.processors, machine.threads)},
      {"instruction sets", facts.at("isa")},
      {"caches", facts.at("caches")},
      {"memory",
       fmt::format("{}, {} free", core::binary_size(machine.memory_bytes), core::binary_size(machine.available_bytes))},
      {"clock now", fmt::format("{:.0f} MHz", measured_clock_mhz())},
      {"GPU", gpu_text(machine)},
      {"system", machine.system},
      {"build", build_text()}};
  std::fputs(aligned(rows).c_str(), stdout);
  if (!quick) print_ceilings(machine);
  for (const Operation* operation : verification::operations()) print_implementations(*operation);
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("info", "Show this machine and its implementations");
  static bool json = false, matrix = false, quick = false;
  auto* as_json = verb->add_flag("--json", json, "print JSON");
  verb->add_flag("--quick", quick, "do not measure ceilings");
  verb->add_flag("--matrix", matrix,
                 "print docs/support.md: the problems that each\nimplementation takes on any machine")
      ->excludes(as_json);
  verb->callback([&action] {
    action = [] {
      if (matrix) {
        for (const Operation* one : verification::operations()) std::fputs(one->support_page().c_str(), stdout);
        return 0;
      }
      const Machine machine = this_machine();
      json ? print_json(machine, quick) : print_words(machine, quick);
      return 0;
    };
  });
}

}  // namespace fovea::program
