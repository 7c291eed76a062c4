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

std::string leaves(const LinearProblem& problem, int number) {
  const HostLibrary& library = host_libraries()[static_cast<std::size_t>(number)];
  return library.leaves == nullptr ? std::string() : library.leaves(problem);
}

// `number`: in host_libraries().
Implementation host_implementation(int number) {
  const HostLibrary& library = host_libraries()[static_cast<std::size_t>(number)];
  return {.name = library.name,
          .device = DeviceKind::cpu,
          .variant = number,
          .automatic = library.named_because.empty(),
          .named_because = std::string(library.named_because),
          .leaves = leaves,
          .unavailable = [](int) { return std::string(); },
          .prepare = prepare_on_host,
          .forward = forward_on_host,
          .backward = backward_on_host};
}

}  // namespace

std::string Types::line(const LinearProblem& problem) { return line_of(problem); }

std::size_t Types::hash(const LinearProblem& p) {
  return core::hash_of(p.pass, p.batch, p.len, p.heads_in, p.dim_in, p.heads_out, p.dim_out, p.dtype, p.result_dtype,
                       p.parameter_dtype, p.device.kind, p.device.index, p.bias, p.wants_dx, p.wants_dweight,
                       p.wants_dbias, p.accumulate, p.accumulate_dx, p.copies_x, p.copies_dy);
}

core::ImplementationList<Types>& Types::list() {
  static auto& all = [&]() -> core::ImplementationList<Types>& {
    const Implementation own = host_implementation(0);
    return core::never_destroyed<core::ImplementationList<Types>>(
        std::initializer_list<std::span<const Implementation>>{cuda_implementations(), {&own, 1}});
  }();
  return all;
}

void register_host_libraries(std::span<const HostLibrary> libraries) {
  std::vector<Implementation> entries;
  for (const HostLibrary& library : libraries) entries.push_back(host_implementation(add_host_library(library)));
  Types::list().add_before(host_libraries().front().name, entries);
}

namespace {

[[maybe_unused]] const auto& made_at_load = Types::list();  // so that fork() cannot interrupt its construction

}  // namespace

std::int64_t plans_made() { return core::Chooser<Types>::Cache::instance().made(); }

}  // namespace fovea::linear
