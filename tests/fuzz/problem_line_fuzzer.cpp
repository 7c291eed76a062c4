// Fuzzer of the problem line: what parses must print, parse back to the same case, and describe itself without a fault.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fovea/error.h"
#include "verification/linear/operation.h"
#include "verification/operation.h"
#include "verification/problem_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fovea;
  [[maybe_unused]] static const bool registered =
      (verification::register_operation(verification::linear_operation()), true);
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  try {
    for (const verification::Case& c : verification::parse_sweep(line, 64)) {
      const std::string printed = verification::line_of(c);
      const verification::Case again = verification::parse_case(printed);
      if (again != c || verification::line_of(again) != printed) std::abort();
      const verification::Cost cost = c.operation->cost(c);
      if (!(cost.flops >= 0) || !(cost.bytes >= 0) || c.operation->tensors(c).empty()) std::abort();
      (void)c.operation->plan(c, "");
    }
  } catch (const Error& error) {
    if (error.status() != Status::invalid_argument || error.details().problem.empty()) std::abort();
  }
  return 0;
}
