// Fuzzer of the problem line: what parses must print, parse back to the same case, and describe itself without a fault.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/problem_line.h"
#include "fovea/attention.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fovea;
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  try {
    for (const core::Case& c : core::parse_sweep(line, 64)) {
      const std::string printed = core::line_of(c);
      if (core::parse_case(printed) != c || core::line_of(core::parse_case(printed)) != printed) std::abort();
      const double pairs = static_cast<double>(visible_pairs(c.problem));
      if (!(pairs >= 0) || !(flops(c.problem) >= 0) || !(bytes(c.problem) >= 0)) std::abort();
      (void)explain(c.problem);
    }
  } catch (const Error& error) {
    if (error.status() != Status::invalid_argument || error.details().problem.empty()) std::abort();
  }
  return 0;
}
