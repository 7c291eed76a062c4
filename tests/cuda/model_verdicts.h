// What the checks of the model share: counting verdicts, and the rule of docs/numerics.md for flat arrays.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "verification/comparer.h"

namespace fovea::cuda {

struct Verdicts {
  int passed = 0, failed = 0;
  void judge(const std::string& what, const std::string& fault) {
    (fault.empty() ? passed : failed) += 1;
    if (!fault.empty()) std::printf("MODEL %s: %s\n", what.c_str(), fault.c_str());
  }
};

// Rows of `columns` numbers.
template <class Number>
verification::RowValues rows_of(const std::vector<Number>& values, std::int64_t columns) {
  verification::RowValues rows{.rows = {}, .columns = columns, .values = {values.begin(), values.end()}};
  const auto count = static_cast<std::int64_t>(values.size()) / columns;
  for (std::int64_t row = 0; row < count; ++row) rows.rows.push_back({0, 0, row});
  return rows;
}

// Empty, or the first thing wrong. The CPU engine is the plain evaluation: its sums are fp32, in another order.
inline std::string fault_of(const verification::RowValues& got, const verification::RowValues& reference,
                            const verification::ErrorSize& plain, double factor) {
  constexpr double kMostPlain = 1e-5;  // a reference that is wrong would allow any answer
  if (!(plain.rel_l2 <= kMostPlain)) return "the CPU engine is far from the reference";
  const verification::TensorError error =
      verification::compare("", got, reference, {.factor = factor, .plain = plain, .stored = DType::fp32});
  return error.ok ? "" : error.detail;
}

// Every pass beside products and attention alone.
void check_model_passes(Verdicts& verdicts);

}  // namespace fovea::cuda
