// The bridge from shared memory to the verification library.
#include "program/worker/answer_check.h"

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

#include "verification/operation.h"

namespace fovea::program {
namespace {

void add_verdict(AnswerCheck& result, const verification::Verdict& verdict) {
  for (const auto& tensor : verdict.tensors)
    result.error[tensor.tensor] = {tensor.rel_l2, tensor.max_abs, tensor.ratio_to_plain};
  result.sampled = result.sampled || verdict.sampled;
  if (verdict.ok && verdict.unjudged.empty()) return;
  result.wrong += (result.wrong.empty() ? "" : "; ") + (verdict.ok ? verdict.unjudged : verdict.reason());
}

}  // namespace

void fill_inputs(const verification::AttentionCase& typed, const TensorPlaces& places, const SharedBlock& inputs) {
  const verification::Case c = verification::case_of(typed);
  const std::vector<verification::TensorSpec> tensors = c.operation->tensors(c);
  std::vector<std::thread> threads;
  for (const auto& tensor : tensors) {
    if (!verification::is_read(tensor.role)) continue;
    const auto* const name = std::find(std::begin(kTensorNames), std::end(kTensorNames), tensor.name);
    const auto view = view_of(places, static_cast<Name>(name - std::begin(kTensorNames)), {inputs, inputs});
    threads.emplace_back(verification::fill, std::cref(c), std::cref(tensor), view);
  }
  for (auto& thread : threads) thread.join();
}

AnswerCheck AnswerChecker::check(const SharedBlock& outputs, BackwardReads reads, bool foreign) {
  AnswerCheck result;
  foreign_ = foreign;
  inaccurate_ = false;
  const bool lse_missing = untouched(view_of(places_, Name::lse, {inputs_, outputs}));
  for (const Name name : {Name::out, Name::lse, Name::dq, Name::dk, Name::dv}) {
    const MutableTensorView view = view_of(places_, name, {inputs_, outputs});
    if (view.buffer_bytes <= 0 || !untouched(view) || (name == Name::lse && foreign)) continue;
    result.wrong += (result.wrong.empty() ? "" : "; ") + std::string(kTensorNames[static_cast<std::size_t>(name)]) +
                    " was not written";
  }
  if (!result.wrong.empty()) return result;
  ForwardTensors forward = forward_tensors(places_, {inputs_, outputs});
  BackwardTensors backward = backward_tensors(places_, {inputs_, outputs});
  if (lse_missing) forward.lse = {}, backward.lse = {};
  add_verdict(result, check_forward(forward));
  if (case_.pass != verification::CasePass::fwd) add_verdict(result, check_backward(backward, reads));
  result.inaccurate = inaccurate_;
  return result;
}

template <class Tensors>
verification::Verdict AnswerChecker::judge(const verification::Expectation& expected, const Tensors& results) {
  verification::Verdict strict = verification::compare(expected, results);
  if (strict.ok || !foreign_) return strict;
  verification::Expectation slack = expected;
  for (auto& tensor : slack.tensors) tensor.bound.factor *= kForeignSlack;
  verification::Verdict lenient = verification::compare(slack, results);
  inaccurate_ = inaccurate_ || lenient.ok;
  return lenient.ok ? lenient : strict;
}

verification::Verdict AnswerChecker::check_forward(const ForwardTensors& tensors) {
  AttentionProblem problem = case_.problem;
  problem.pass = Pass::forward;
  if (!forward_) forward_ = verification::expect_forward(problem, tensors, case_.seed, definition_);
  return judge(*forward_, tensors);
}

verification::Verdict AnswerChecker::check_backward(BackwardTensors tensors, BackwardReads reads) {
  AttentionProblem problem = case_.problem;
  problem.pass = Pass::backward;
  const auto expectation = [&] { return verification::expect_backward(problem, tensors, case_.seed, {}, definition_); };
  if (reads == BackwardReads::out_and_lse) return verification::compare(expectation(), tensors);
  // Their truth is the definition's own, the same for all; only where the problem is too large for the whole of the
  // definition are out and lse, which have been checked, taken as given.
  const BackwardTensors results = tensors;
  if (!forward_->sampled) tensors.out = {}, tensors.lse = {};
  if (!backward_ || forward_->sampled) backward_ = expectation();
  return judge(*backward_, results);
}

}  // namespace fovea::program
