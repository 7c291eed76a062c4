// The list for Linear.
#include "core/choose.h"
#include "core/never_destroyed.h"
#include "linear/cuda/linear.h"
#include "linear/host_plan.h"
#include "linear/host_run.h"
#include "linear/implementation.h"
#include "linear/problem_line.h"

namespace fovea::linear {
namespace {

std::vector<Implementation> host_implementations() {
  std::vector<Implementation> all;
  for (const HostLibrary& library : host_libraries())
    all.push_back({.name = library.name,
                   .device = DeviceKind::cpu,
                   .variant = static_cast<int>(all.size()),
                   .automatic = library.named_because.empty(),
                   .named_because = std::string(library.named_because),
                   .unavailable = [](int) { return std::string(); },
                   .prepare = prepare_on_host,
                   .forward = forward_on_host,
                   .backward = backward_on_host});
  return all;
}

}  // namespace

std::string Types::line(const LinearProblem& problem) { return line_of(problem); }

core::ImplementationList<Types>& Types::list() {
  static auto& all = core::never_destroyed<core::ImplementationList<Types>>(
      std::initializer_list<std::span<const Implementation>>{cuda_implementations(), host_implementations()});
  return all;
}

std::int64_t plans_made() { return core::Chooser<Types>::Cache::instance().made(); }

}  // namespace fovea::linear
