// A case: one problem of an operation and its inputs; it can be replayed bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem_line.h"
#include "fovea/problem.h"

namespace fovea::verification {

class Operation;

enum class CasePass : std::uint8_t { fwd, bwd, e2e };  // e2e: forward, then backward
inline constexpr CasePass kCasePasses[] = {CasePass::fwd, CasePass::bwd, CasePass::e2e};
std::string_view name_of(CasePass pass);

struct Case {
  explicit Case(const Operation& the_operation);  // every key at its fallback

  const Operation* operation;
  core::LineValues values;             // for the operation's keys, and for data, place and seed
  std::vector<std::string> variation;  // properties that the line has no word for (operation.h); empty in a bench

  // A key's value. Asking for a key that the case lacks is a programming error.
  const std::string& operator[](std::string_view key) const { return values[key]; }
  std::int64_t count(std::string_view key) const { return values.count(key); }
  double number(std::string_view key) const { return values.number(key); }

  // Keys of every operation.
  CasePass pass() const;
  bool forwards() const { return pass() != CasePass::bwd; }
  bool backwards() const { return pass() != CasePass::fwd; }
  bool updates() const;  // backward then also updates weights
  DType dtype() const;
  DeviceKind device() const;
  const std::string& data() const { return values["data"]; }    // input family
  const std::string& place() const { return values["place"]; }  // memory placement, a name of kPlacements
  std::uint64_t seed() const;

  // A copy in which one key has another value, in the form of the line.
  template <class Value>
  Case with(std::string_view key, const Value& value) const {
    Case changed = *this;
    changed.values.set(key, value);
    return changed;
  }
  bool varies(std::string_view word) const;  // whether `variation` holds the word

  bool operator==(const Case&) const = default;
};

// The case planned and called without saved state: backward has only what forward returns.
Case without_saved_state(Case c);

// The case with another word, and the line resolved again, because other keys may apply now.
Case with_word(Case c, std::string_view key, std::string_view word);

inline constexpr std::string_view kPlacements[] = {"contiguous", "strided", "broadcast", "guarded", "guarded_front"};

}  // namespace fovea::verification
