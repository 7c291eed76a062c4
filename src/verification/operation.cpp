// The list of operations, and the defaults that follow from an operation's keys.
#include "verification/operation.h"

#include <algorithm>

#include "core/check.h"
#include "core/names.h"
#include "core/never_destroyed.h"
#include "core/random.h"
#include "verification/attention/operation.h"
#include "verification/problem_line.h"

namespace fovea::verification {
namespace {

std::vector<const Operation*>& list() {
  static auto& all = core::never_destroyed<std::vector<const Operation*>>(
      std::initializer_list<const Operation*>{&attention_operation()});
  return all;
}

core::KeyTable with_input_keys(core::KeyTable table, const std::vector<Family>& families) {
  std::vector<std::string_view> names;
  for (const Family& family : families) names.push_back(family.name);
  table.keys.push_back({"data", core::KeyKind::word, "distribution of the inputs", names, std::string(names.front())});
  table.keys.push_back(core::Key{"place",
                                 core::KeyKind::word,
                                 "how the tensors lie in memory",
                                 {std::begin(kPlacements), std::end(kPlacements)},
                                 "contiguous"}
                           .printed({.noun = "placement"}));
  table.keys.push_back(
      core::Key{"seed", core::KeyKind::seed, "seed of the inputs", {}, "0"}.printed({.place = core::KeyPlace::column}));
  return table;
}

// Random numbers of one case.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t n) : seed_(seed), n_(n) {}
  std::uint32_t below(std::size_t count) {
    return core::philox(seed_, n_, position_++)[0] % static_cast<std::uint32_t>(count);
  }

 private:
  std::uint64_t seed_, n_, position_ = 0;
};

constexpr std::int64_t kSizes[] = {1, 1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 33, 64, 65, 127};
constexpr int kTries = 100;

Case drawn_case(const Operation& operation, Draw& draw, const CaseLimits& limits) {
  Case c(operation);
  std::vector<bool> given(operation.keys().keys.size(), false);
  for (std::size_t n = 0; n < given.size(); ++n) {
    const core::Key& key = operation.keys().keys[n];
    given[n] = key.kind == core::KeyKind::word || draw.below(3) != 0;
    if (key.kind == core::KeyKind::word) c.values.set(key.name, std::string(key.words[draw.below(key.words.size())]));
    if (key.kind == core::KeyKind::count) c.values.set(key.name, kSizes[draw.below(std::size(kSizes))]);
    if (key.kind == core::KeyKind::number) given[n] = false;
    if (key.kind == core::KeyKind::seed) c.values.set(key.name, std::to_string(draw.below(UINT32_MAX)));
  }
  if (!limits.backward) c.values.set("pass", "fwd");
  if (!limits.forward) c.values.set("pass", "bwd");
  c.values.set("device", std::string(core::name_of(limits.device)));
  c.values.resolve(given);
  return c;
}

}  // namespace

std::string CasePlan::refusal() const {
  if (!implementation.empty()) return "";
  if (walk.size() == 1) return walk.front().reason;  // the only one that was asked
  std::string text;
  for (const Step& step : walk) text += (text.empty() ? "" : "; ") + step.name + ": " + step.reason;
  return text.empty() ? "no implementation takes it" : text;
}

Operation::Operation(const core::KeyTable& keys, std::vector<Family> families)
    : keys_(with_input_keys(keys, families)), families_(std::move(families)) {}

Call Operation::prepare_foreign(const Case&, const TensorSet&, const CallSettings& settings) const {
  core::fail({.status = Status::unsupported,
              .argument = "--impl",
              .problem = "op=" + std::string(name()) + " has no call for kernels of others",
              .got = settings.implementation});
}

Case Operation::random_case(std::uint64_t seed, std::uint64_t n, const CaseLimits& limits) const {
  Draw draw(seed, n);
  Case c = drawn_case(*this, draw, limits);
  for (int tries = 1; tries < kTries && !fault_of(c).empty(); ++tries) c = drawn_case(*this, draw, limits);
  return fault_of(c).empty() ? c : Case(*this);
}

// Leaves out each optional output in one case of four, and some of the gradients in one case of four.
std::vector<std::string> Operation::variation_of(const Case& c) const {
  Draw draw(c.seed(), 0xC0FFEE);
  std::vector<std::string> words;
  const bool some_gradients = draw.below(4) == 0;
  std::size_t gradients = 0, left_out = 0;
  const std::vector<TensorSpec> all = tensors(c);
  for (const TensorSpec& one : all) gradients += one.role == Role::gradient ? 1 : 0;
  for (const TensorSpec& one : all) {
    const bool drops_gradient =
        one.role == Role::gradient && some_gradients && draw.below(2) == 0 && left_out + 1 < gradients;
    if (drops_gradient) ++left_out;
    const bool drops_output = one.role == Role::output && one.optional && !c.backwards() && draw.below(4) == 0;
    if (drops_gradient || drops_output) words.push_back("no_" + one.name);
  }
  return words;
}

std::vector<Axis> Operation::axes() const {
  std::vector<Axis> axes;
  for (const char* name : {"pass", "dtype"}) {
    const core::Key& key = *keys_.find(name);
    axes.push_back({name, {key.words.begin(), key.words.end()}});
  }
  axes.front().classes = {"forward", "backward"};
  return axes;
}

AxisCell Operation::cell_of(const Case& c, Pass pass) const {
  const auto& words = keys_.find("dtype")->words;
  const auto dtype = std::find(words.begin(), words.end(), c["dtype"]) - words.begin();
  return {static_cast<std::size_t>(pass), static_cast<std::size_t>(dtype)};
}

CellSupport Operation::support_of(const ImplementationFacts&, const AxisCell&) const { return {Support::partly, ""}; }

std::string Operation::support_page() const {
  std::string page = "\n# What each implementation of " + std::string(name()) + " takes\n\n";
  for (const ImplementationFacts& one : implementations())
    page += "- `" + one.name + "` on " + std::string(core::name_of(one.device)) + "\n";
  return page;
}

void register_operation(const Operation& operation) { list().push_back(&operation); }
const std::vector<const Operation*>& operations() { return list(); }

const Operation* find_operation(std::string_view name) {
  const auto found =
      std::find_if(list().begin(), list().end(), [name](const auto* one) { return one->name() == name; });
  return found == list().end() ? nullptr : *found;
}

}  // namespace fovea::verification
