// One verdict from one comparison per tensor.
#include "verification/expectation.h"

namespace fovea::verification {
namespace {

TensorError compare(const ExpectedTensor& wanted, const TensorView& got) {
  if (!got) {  // an empty tensor needs no memory
    if (wanted.reference.rows.empty()) return {.tensor = wanted.name, .ok = true};
    return {.tensor = wanted.name, .detail = "was asked for and is missing"};
  }
  const RowValues values = read_rows(got, wanted.reference.rows);
  if (wanted.bound.is_lse) return compare_lse(values, wanted.reference, wanted.bound);
  return compare(wanted.name, values, wanted.reference, wanted.bound);
}

Verdict compare_once(const Expectation& expected, const TensorSet& results) {
  Verdict verdict{.ok = true, .tensors = {}, .sampled = expected.sampled, .unjudged = expected.unjudged};
  for (const ExpectedTensor& wanted : expected.tensors) {
    const MutableTensorView* const got = results.find(wanted.name);
    if (got == nullptr) continue;
    verdict.tensors.push_back(compare(wanted, *got));
    verdict.ok = verdict.ok && verdict.tensors.back().ok;
  }
  return verdict;
}

}  // namespace

std::string Verdict::reason() const {
  std::string text;
  for (const auto& tensor : tensors) {
    if (!tensor.ok) text += (text.empty() ? "" : "; ") + tensor.tensor + " " + tensor.detail;
  }
  return text;
}

void Expectation::include_rest() {
  if (measure_rest) measure_rest(*this);
  measure_rest = {};
}

Verdict compare(const Expectation& expected, const TensorSet& results) {
  Verdict verdict = compare_once(expected, results);
  if (verdict.ok) return verdict;
  Expectation remeasured = expected;
  for (const auto& measure : {expected.measure_rest, expected.measure_more}) {
    if (verdict.ok || !measure) continue;
    measure(remeasured);
    verdict = compare_once(remeasured, results);
  }
  return verdict;
}

}  // namespace fovea::verification
