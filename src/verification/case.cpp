// Typed values of a case's keys.
#include "verification/case.h"

#include <algorithm>

#include "core/names.h"
#include "verification/operation.h"

namespace fovea::verification {
namespace {

constexpr std::string_view kPasses[] = {"fwd", "bwd", "e2e"};

}  // namespace

std::string_view name_of(CasePass pass) { return kPasses[static_cast<std::size_t>(pass)]; }

Case::Case(const Operation& the_operation) : operation(&the_operation), values(the_operation.keys()) {
  values.resolve(std::vector<bool>(values.table().keys.size(), false));
}

CasePass Case::pass() const {
  const auto* const found = std::find(std::begin(kPasses), std::end(kPasses), values["pass"]);
  return static_cast<CasePass>(found - std::begin(kPasses));
}

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
