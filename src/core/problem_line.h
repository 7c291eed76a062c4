// The problem line: one line of key=value words that names a case, prints canonically and replays it to the bit.
//   op=attention pass=fwd b=2 hq=32 hkv=8 lq=4096 lk=4096 d=128 dv=128 dtype=bf16 mask=causal layout=bhld
//   scale=0.088388347648318447 device=cpu data=normal place=contiguous seed=7
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/problem.h"

namespace fovea::core {

enum class CasePass : std::uint8_t { fwd, bwd, e2e };  // e2e: forward, then backward
inline constexpr CasePass kCasePasses[] = {CasePass::fwd, CasePass::bwd, CasePass::e2e};

enum class Layout : std::uint8_t { bhld, blhd };  // order of the dimensions in memory

// A problem together with the inputs that replay it. `problem.pass` is forward for fwd and e2e, backward for bwd.
struct Case {
  std::string op = "attention";
  CasePass pass = CasePass::fwd;
  AttentionProblem problem;
  Layout layout = Layout::bhld;
  std::string data = "normal";       // input family, a name of kDataFamilies
  std::string place = "contiguous";  // memory placement, a name of kPlacements
  std::uint64_t seed = 0;

  bool operator==(const Case&) const = default;
};

inline constexpr std::string_view kDataFamilies[] = {"normal",   "peaked", "integers", "ramps",  "constant", "outliers",
                                                     "denormal", "large",  "ones",     "onehot", "nonfinite"};
inline constexpr std::string_view kPlacements[] = {"contiguous", "strided", "broadcast", "guarded", "guarded_front"};

std::string_view name_of(CasePass pass);
std::string_view name_of(Layout layout);

// Parses one line; a comma list is refused. Throws Error(invalid_argument) with the position of the offending word.
Case parse_case(std::string_view line);

// Parses a sweep: every key may hold a comma list; the last key varies fastest. Refuses more than `max_cases`.
std::vector<Case> parse_sweep(std::string_view line, std::int64_t max_cases = 1'000'000);

// Canonical print: every key, in fixed order, defaults resolved. parse_case(line_of(c)) == c.
std::string line_of(const Case& c);
std::string line_of(const AttentionProblem& problem);

// The word of `known` that is closest to `word` in any case of letters, or "" if none is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace fovea::core
