// What an implementation of an operation is: a name, a plan or a refusal for each problem, and the functions that run.
#pragma once

#include <atomic>
#include <deque>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "core/plan.h"
#include "fovea/attention.h"

namespace fovea::core {

// `Types` names what belongs to the operation: `Problem`, with a device; `ForwardTensors` and `BackwardTensors`;
// `line(problem)`, the problem's line; `asks_reproducible(problem)`; `list()`, its implementations; `requested(name)`,
// the implementation that a call which gives `name` asks for, or nothing; `kWords`, what it takes besides names.
template <class Types>
struct Implementation {
  using Problem = typename Types::Problem;

  std::string_view name;  // cpu.avx512
  DeviceKind device = DeviceKind::cpu;
  int variant = 0;            // tells entries apart that share their functions: an instruction set, a form
  bool automatic = true;      // false: runs only when named
  std::string named_because;  // why only then, if there is more to say
  bool reproducible = true;   // false: not bitwise reproducible; takes problems that do without it only
  // Why this machine cannot run it at all; empty if it can.
  std::string (*unavailable)(int variant) = nullptr;
  // Whether it takes the problem, and all that its runs then need. Device and availability are checked by the caller.
  Prepared (*prepare)(const Problem&, int variant) = nullptr;
  // Each takes a plan that its own `prepare` made.
  void (*forward)(const Plan&, const typename Types::ForwardTensors&, const RunContext&) = nullptr;
  void (*backward)(const Plan&, const typename Types::BackwardTensors&, const RunContext&) = nullptr;
  // Workspace on the device, taken and given back in the order of the stream; null: host memory of core/memory.h. What
  // is taken may be larger than the plan asks for.
  Buffer (*allocate_workspace)(const Plan&, void* stream) = nullptr;
  void (*release_workspace)(const Plan&, const Buffer& workspace, void* stream) = nullptr;

  std::string obstacle() const { return unavailable(variant); }
  Prepared prepared(const Problem& problem) const { return prepare(problem, variant); }
};

// The ordered list of an operation's implementations: the library's own, best first, then what a program added.
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

  // Not while calls run.
  void add(std::span<const Entry> more) {
    all_.insert(all_.end(), more.begin(), more.end());
    generation_.fetch_add(1, std::memory_order_release);
  }
  // Another number after each `add`: what was chosen from a shorter list is not chosen again.
  unsigned generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  std::deque<Entry> all_;  // entries stay where they are: choices point to them
  std::atomic<unsigned> generation_{0};
};

}  // namespace fovea::core
