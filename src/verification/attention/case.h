// A case of attention as a struct, for code that only attention has: its input families, its reference, its case list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/problem.h"
#include "verification/case.h"

namespace fovea::verification {

enum class Layout : std::uint8_t { bhld, blhd };  // order of the dimensions in memory
std::string_view name_of(Layout layout);

// `problem.pass` is forward for fwd and e2e, backward for bwd.
struct AttentionCase {
  CasePass pass = CasePass::fwd;
  AttentionProblem problem;
  Layout layout = Layout::bhld;
  std::string data = "normal";       // input family, a name of kDataFamilies
  std::string place = "contiguous";  // a name of kPlacements
  std::uint64_t seed = 0;

  bool operator==(const AttentionCase&) const = default;
};

inline constexpr std::string_view kDataFamilies[] = {"normal",   "peaked",   "integers",  "ramps",
                                                     "constant", "outliers", "denormal",  "large",
                                                     "ones",     "onehot",   "nonfinite", "sink"};

AttentionCase attention_case(const Case& c);
Case case_of(const AttentionCase& c);

// Like parse_case, parse_sweep and line_of of problem_line.h; lines of other operations are refused.
AttentionCase attention_case(std::string_view line);
std::vector<AttentionCase> attention_sweep(std::string_view line, std::int64_t max_cases = 1'000'000);
std::string line_of(const AttentionCase& c);

}  // namespace fovea::verification
