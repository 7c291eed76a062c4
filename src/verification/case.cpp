// Typed values of a case's keys.
#include "verification/case.h"

#include <algorithm>

#include "core/names.h"
#include "verification/operation.h"

namespace fovea::verification {
namespace {

constexpr std::string_view kPasses[] = {"fwd", "bwd", "e2e"};

// A step of an operation that has weights is these passes with an update behind backward.
constexpr std::string_view kStepPasses[] = {"step_fwd", "step_rest", "step"};

}  // namespace

std::string_view name_of(CasePass pass) { return kPasses[static_cast<std::size_t>(pass)]; }

Case::Case(const Operation& the_operation) : operation(&the_operation), values(the_operation.keys()) {
  values.resolve(std::vector<bool>(values.table().keys.size(), false));
}

CasePass Case::pass() const {
  for (const CasePass pass : kCasePasses) {
    const auto n = static_cast<std::size_t>(pass);
    if (values["pass"] == kPasses[n] || values["pass"] == kStepPasses[n]) return pass;
  }
  return CasePass::fwd;
}

bool Case::updates() const { return values["pass"] == "step" || values["pass"] == "step_rest"; }

DType Case::dtype() const { return *core::dtype_of(values["dtype"]); }
DeviceKind Case::device() const { return *core::device_kind_of(values["device"]); }
std::uint64_t Case::seed() const { return values.seed("seed"); }

Case without_saved_state(Case c) {
  c.variation.emplace_back("stateless");
  return c;
}

Case with_word(Case c, std::string_view key, std::string_view word) {
  c.values.set(key, std::string(word));
  std::vector<bool> given;
  for (const core::Key& other : c.values.table().keys) given.push_back(!c[other.name].empty());
  c.values.resolve(given);
  return c;
}

bool Case::varies(std::string_view word) const {
  return std::find(variation.begin(), variation.end(), word) != variation.end();
}

}  // namespace fovea::verification
