// Problem lines and sweeps of every operation: one parser, driven by their tables of keys.
//   op=attention pass=fwd b=2 hq=32 lq=4k d=128 dtype=bf16 mask=causal seed=7
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "verification/case.h"

namespace fovea::verification {

// Parses one line; a comma list is refused. Throws Error(invalid_argument) with the position of the offending word.
Case parse_case(std::string_view line);

// Parses a sweep: every key but op may hold a comma list; the last key varies fastest. Refuses more than `max_cases`.
std::vector<Case> parse_sweep(std::string_view line, std::int64_t max_cases = 1'000'000);

// Canonical print: every key that applies, in the table's order. parse_case(line_of(c)) == c.
std::string line_of(const Case& c);

// Every case with every input family at every placement. Each has its own seed, from which follow the variation and the
// rows or elements that a family singles out.
std::vector<Case> with_every_input(const std::vector<Case>& cases);

// Why the values are not a valid problem, as a sentence; empty if they are.
std::string fault_of(const Case& c);

// Whether the key has the value that the line would have without it: hkv=hq, scale=1/sqrt(d).
bool is_fallback(const Case& c, const core::Key& key);

// The keys of problem lines, for the help of verbs that take a line.
std::string problem_line_help();

}  // namespace fovea::verification
