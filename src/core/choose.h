// Chooses an implementation: the one that was named, or else from the list. The first that takes the problem leads; a
// later one replaces it only if both predict a time and the later time is smaller.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "core/implementation.h"
#include "core/names.h"
#include "core/plan_cache.h"

namespace fovea::core {

// Throw the refusals of a choice; `line` is the problem line. `name` is the call's argument: empty if `wanted` comes
// from the environment.
[[noreturn]] void refuse_name(std::string_view name, std::string_view wanted, const std::vector<std::string>& known,
                              std::string_view call, std::string line);
[[noreturn]] void refuse_everywhere(std::string refusals, std::string_view call, std::string line);

// How reasons begin that concern the choice alone: the implementation takes the problem if it is named.
inline constexpr std::string_view kOnlyWhenNamed = "runs only when named";

// One implementation's answer to a problem.
struct Verdict {
  std::string_view name;
  Prepared prepared;   // holds a plan even if `reason` says that it runs only when named
  std::string reason;  // empty: it takes the problem
};

// The implementation and the plan that a call runs.
template <class Types>
struct Choice {
  typename Types::Problem problem;
  std::string name;  // as requested; empty: any
  unsigned generation = 0;
  const Implementation<Types>* implementation = nullptr;
  std::shared_ptr<const Plan> plan;

  template <class Request>
  bool answers(const Request& request) const {
    return generation == request.generation && problem == request.problem && name == request.name;
  }
};

// The walk through the list of an operation.
template <class Types>
class Chooser {
 public:
  using Problem = typename Types::Problem;
  using Entry = Implementation<Types>;

  // `name`: of one implementation, or empty.
  Chooser(const Problem& problem, std::string_view name)
      : problem_(problem), given_(name), wanted_(Types::requested(name)), list_(Types::list()) {}

  // Throws Error(invalid_argument) if no implementation has the requested name.
  void check_name(std::string_view call) const {
    const auto is_wanted = [this](const Entry& one) { return one.name == wanted_; };
    if (!wanted_.empty() && std::none_of(list_.begin(), list_.end(), is_wanted))
      refuse_name(given_, wanted_, known_names(), call, Types::line(problem_));
  }

  // The verdicts of all candidates in list order, including those after the chosen one.
  std::vector<Verdict> walk() const {
    std::vector<Verdict> all;
    for (const Entry& one : list_) {
      if (is_candidate(one)) all.push_back(verdict(one));
    }
    return all;
  }

  // The verdict of the chosen implementation; null if all of them refuse.
  static const Verdict* leader(const std::vector<Verdict>& verdicts) {
    const Verdict* best = nullptr;
    for (const Verdict& one : verdicts) {
      if (one.reason.empty() && (best == nullptr || is_faster(*one.prepared.plan, *best->prepared.plan))) best = &one;
    }
    return best;
  }

  // Cached for the next call with this problem. Throws Error(unsupported) with every refusal if none takes it,
  // Error(invalid_argument) if the name is unknown.
  std::shared_ptr<const Choice<Types>> choose(std::string_view call) const {
    const struct {
      const Problem& problem;
      std::string_view name;
      unsigned generation;
      std::size_t hash;
    } request{problem_, wanted_, list_.generation(), hash_of(Types::hash(problem_), wanted_, list_.generation())};
    return Cache::instance().find(request, [&] { return make(call, request.generation); });
  }

  // The names that a call may request: every implementation's, each once.
  static std::vector<std::string> known_names() {
    std::vector<std::string> names;
    for (const Entry& one : Types::list()) {
      if (std::find(names.begin(), names.end(), one.name) == names.end()) names.emplace_back(one.name);
    }
    return names;
  }

  using Cache = PlanCache<Choice<Types>>;

 private:
  static bool is_faster(const Plan& later, const Plan& best) {
    return later.seconds > 0 && best.seconds > 0 && later.seconds < best.seconds;
  }

  // Implementations for several devices may share one name. The tensors' device then decides.
  bool has_twin(const Entry& one) const {
    const DeviceKind device = problem_.device.kind;
    return one.device != device && std::any_of(list_.begin(), list_.end(), [&](const Entry& other) {
             return other.name == one.name && other.device == device;
           });
  }

  // Whether the walk asks it: by name, or without a name if it is automatic or runs on the tensors' device.
  bool is_candidate(const Entry& one) const {
    const bool matches = wanted_.empty() ? one.automatic || one.device == problem_.device.kind : one.name == wanted_;
    return matches && !has_twin(one);
  }

  Prepared prepare(const Entry& one) const {
    if (one.device != problem_.device.kind)
      return {.refusal = "runs on " + std::string(name_of(one.device)) + ", the tensors are on " +
                         std::string(name_of(problem_.device.kind))};
    if (std::string reason = one.obstacle(); !reason.empty()) return {.refusal = std::move(reason)};
    if (Types::asks_reproducible(problem_) && !one.reproducible)
      return {.refusal = std::string(kOnlyWhenNamed) + ", with reproducible=false: not bitwise reproducible"};
    return one.prepared(problem_);
  }

  Verdict verdict(const Entry& one) const {
    Verdict result{.name = one.name, .prepared = prepare(one), .reason = {}};
    result.reason = result.prepared.refusal;
    if (result.reason.empty() && wanted_.empty() && one.runs_only_named(problem_)) {
      const std::string why = one.why_only_named(problem_);
      result.reason = std::string(kOnlyWhenNamed) + (why.empty() ? "" : ": " + why);
    }
    return result;
  }

  std::shared_ptr<const Choice<Types>> make(std::string_view call, unsigned generation) const {
    auto choice = std::make_shared<Choice<Types>>();
    for (const Entry& one : list_) {
      const bool may_lead = choice->plan == nullptr || choice->plan->seconds > 0;
      if (!may_lead || !is_candidate(one) || (wanted_.empty() && one.runs_only_named(problem_))) continue;
      std::shared_ptr<const Plan> plan = prepare(one).plan;
      if (plan == nullptr || (choice->plan != nullptr && !is_faster(*plan, *choice->plan))) continue;
      choice->implementation = &one;
      choice->plan = std::move(plan);
    }
    if (choice->plan == nullptr) refuse(call);
    choice->problem = problem_, choice->name = wanted_, choice->generation = generation;
    return choice;
  }

  [[noreturn]] void refuse(std::string_view call) const {
    check_name(call);
    std::string refusals;
    for (const Verdict& one : walk())
      refusals += (refusals.empty() ? "" : "\n          ") + std::string(one.name) + ": " + one.reason;
    refuse_everywhere(std::move(refusals), call, Types::line(problem_));
  }

  const Problem& problem_;
  std::string_view given_, wanted_;
  const ImplementationList<Types>& list_;
};

}  // namespace fovea::core
