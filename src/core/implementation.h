// An implementation of an operation: its name, the function that plans or refuses a problem, and the functions that run
// the plan.
#pragma once

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <list>
#include <span>
#include <string>
#include <string_view>

#include "core/plan.h"
#include "fovea/attention.h"

namespace fovea::core {

// The ways in which plans of a pass run problems: with keys in chunks, or in several waves. Verification counts the
// cases of each.
struct PlanKinds {
  std::span<const std::string_view> forward = {}, backward = {};
};

// `Types` describes the operation: `Problem`, with the field `device`; `ForwardTensors` and `BackwardTensors`;
// `line(problem)`, the problem line; `hash(problem)`; `asks_reproducible(problem)`; `list()`, the implementations;
// `requested(name)`, the implementation that a call with `name` requests, or "".
template <class Types>
struct Implementation {
  using Problem = typename Types::Problem;

  std::string_view name;  // cpu.avx512
  DeviceKind device = DeviceKind::cpu;
  int variant = 0;            // distinguishes entries that share their functions: an instruction set, a form
  bool automatic = true;      // false: runs only when named
  std::string named_because;  // why it is not automatic; may be empty
  // Why it leaves a problem to later entries unless it is named; empty if it does not, null if it never does.
  std::string (*leaves)(const Problem&, int variant) = nullptr;
  PlanKinds plan_kinds = {};
  bool reproducible = true;  // false: not bitwise reproducible, so it takes only problems with reproducible=false
  // Why this machine cannot run it at all; empty if it can.
  std::string (*unavailable)(int variant) = nullptr;
  // A plan or a refusal. The caller has checked device and availability.
  Prepared (*prepare)(const Problem&, int variant) = nullptr;
  // Both run a plan that this entry's `prepare` made.
  void (*forward)(const Plan&, const typename Types::ForwardTensors&, const RunContext&) = nullptr;
  void (*backward)(const Plan&, const typename Types::BackwardTensors&, const RunContext&) = nullptr;
  // Workspace on the device, allocated and released in stream order; null: host memory of core/memory.h. The buffer may
  // be larger than the plan's workspace.
  Buffer (*allocate_workspace)(const Plan&, void* stream) = nullptr;
  void (*release_workspace)(const Plan&, const Buffer& workspace, void* stream) = nullptr;

  std::string obstacle() const { return unavailable(variant); }
  bool runs_only_named(const Problem& problem) const {
    return !automatic || (leaves != nullptr && !leaves(problem, variant).empty());
  }
  std::string why_only_named(const Problem& problem) const {
    return automatic ? leaves(problem, variant) : named_because;
  }
  Prepared prepared(const Problem& problem) const { return prepare(problem, variant); }
};

// The ordered list of an operation's implementations: the library's own, in the order in which a call tries
// them, then those that a program added.
template <class Types>
class ImplementationList {
 public:
  using Entry = Implementation<Types>;

  ImplementationList() = default;
  explicit ImplementationList(std::initializer_list<std::span<const Entry>> backends) {
    for (const auto& backend : backends) add(backend);
  }

  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

  // Behind all others, or before the first entry of a name. Must not be called while calls run.
  void add(std::span<const Entry> more) { insert(all_.end(), more); }
  void add_before(std::string_view name, std::span<const Entry> more) {
    insert(std::find_if(all_.begin(), all_.end(), [name](const Entry& one) { return one.name == name; }), more);
  }
  // Changes with each `add`, so that cached choices from a shorter list are not used again.
  unsigned generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  void insert(typename std::list<Entry>::const_iterator before, std::span<const Entry> more) {
    all_.insert(before, more.begin(), more.end());
    generation_.fetch_add(1, std::memory_order_release);
  }

  std::list<Entry> all_;  // a list keeps entries in place: choices point to them
  std::atomic<unsigned> generation_{0};
};

}  // namespace fovea::core
