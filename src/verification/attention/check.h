// Is an answer of attention right? Its error against the reference is compared with the error of the plain evaluation.
#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/attention.h"
#include "verification/attention/evaluation.h"
#include "verification/expectation.h"

namespace fovea::verification {

// Both read inputs and outputs through host views. Problems above 2 GFLOP are checked on 256 random rows and keys,
// drawn from `seed`, and at tile edges. Gradients that were not asked for (null views) are not checked.
Verdict check_forward(const AttentionProblem& problem, const ForwardTensors& tensors, std::uint64_t seed);
Verdict check_backward(const AttentionProblem& problem, const BackwardTensors& tensors, std::uint64_t seed);

// The same in two steps, so that several answers to one problem are compared with one expectation, which needs only the
// inputs. Backward's inputs are q, k, v, dout, and lse with out or delta. Where lse, out and delta are absent, as for
// an implementation that reads its own saved state, the reference computes them.

// `Expectation::unjudged` where fp32 determines no row of a wanted gradient (score_sizes.h).
inline constexpr std::string_view kUnjudged = "scores of 2^24 and more leave no gradient to compare";
// `evaluator` evaluates the sampled rows of a large problem.
Expectation expect_forward(const AttentionProblem& problem, const ForwardTensors& inputs, std::uint64_t seed,
                           const ReferenceEvaluator& evaluator = {});
Expectation expect_backward(const AttentionProblem& problem, const BackwardTensors& inputs, std::uint64_t seed,
                            const Gradients& before = {}, const ReferenceEvaluator& evaluator = {});
Verdict compare(const Expectation& expected, const ForwardTensors& results);  // skips lse if it is null
Verdict compare(const Expectation& expected, const BackwardTensors& results);

}  // namespace fovea::verification
