// Evaluates chosen rows of a problem: the reference in double precision, or the plain evaluation in the inputs'.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fovea/attention.h"
#include "verification/attention/plain.h"
#include "verification/comparer.h"

namespace fovea::verification {

// The rows that are computed and compared, ordered by batch and head.
struct Sample {
  std::vector<RowIndex> queries;  // of out, lse, dq
  std::vector<RowIndex> keys;     // of dk, dv
  bool complete = true;
};

// All query rows of the problem.
std::vector<RowIndex> every_query(const AttentionProblem& problem);

// Rounds every value to the type; values beyond its range become infinite.
void round_to(DType type, RowValues& values);

// All rows of problems up to 2 GFLOP. Of larger ones, 256 random rows and keys of up to four key heads, and rows at
// tile edges. A key that many query rows share costs more than a row, so the keys are limited to 4e9 multiplications.
Sample sample_of(const AttentionProblem& problem, std::uint64_t seed);

struct ForwardValues {
  RowValues out, lse;
};
struct BackwardValues {
  RowValues dq, dk, dv;  // empty if not asked for
};

// The values of the gradients before they are accumulated into; a null view means zeros.
struct Gradients {
  TensorView dq = {}, dk = {}, dv = {};
};
// Adds the gradients' former values. `rounds`: to fp32, for the plain evaluation.
void add_before(const Gradients& before, BackwardValues& values, bool rounds);

// Evaluates the reference for the rows of a sample that is not complete. Empty functions: the CPU does.
struct ReferenceEvaluator {
  std::function<ForwardValues(const AttentionProblem&, const ForwardTensors&, const Sample&)> forward = {};
  std::function<BackwardValues(const AttentionProblem&, const BackwardTensors&, const Sample&)> backward = {};
};

ForwardValues evaluate_reference(const AttentionProblem& problem, const ForwardTensors& tensors, const Sample& sample);
BackwardValues evaluate_reference(const AttentionProblem& problem, const BackwardTensors& tensors,
                                  const Sample& sample);

// The plain evaluation, its results rounded to the problem's result type. Former values of the gradients are added to
// the results, or, if fused, the sums start from them.
ForwardValues evaluate_plain(const AttentionProblem& problem, const ForwardTensors& tensors, const Sample& sample,
                             PlainVariant variant);
BackwardValues evaluate_plain(const AttentionProblem& problem, const BackwardTensors& tensors, const Sample& sample,
                              PlainVariant variant, const Gradients& before = {});

}  // namespace fovea::verification
