// Connects shared memory with the verification library.
#include "program/worker/answer_check.h"

#include "verification/blocks.h"

namespace fovea::program {
namespace {

using verification::Expectation;
using verification::Role;
using verification::TensorSet;

void add_verdict(AnswerCheck& result, const verification::Verdict& verdict) {
  for (const auto& tensor : verdict.tensors)
    result.error[tensor.tensor] = {tensor.rel_l2, tensor.max_abs, tensor.ratio_to_plain};
  result.sampled = result.sampled || verdict.sampled;
  if (verdict.ok && verdict.unjudged.empty()) return;
  result.wrong += (result.wrong.empty() ? "" : "; ") + (verdict.ok ? verdict.unjudged : verdict.reason());
}

}  // namespace

void fill_inputs(const verification::Case& c, const TensorPlaces& places, const SharedBlock& inputs) {
  for (const auto& place : places.places) {
    if (place.is_input()) verification::fill(c, place.tensor, view_of(place, {inputs, inputs}));
  }
}

std::size_t digest_of(const SharedBlock& outputs) {
  const auto* const bytes = reinterpret_cast<const char*>(outputs.data());
  return verification::digest_of({bytes, static_cast<std::size_t>(outputs.bytes())});
}

AnswerCheck AnswerChecker::check(const SharedBlock& outputs, const TensorPlaces& places, BackwardReads reads,
                                 bool foreign) {
  AnswerCheck result;
  foreign_ = foreign;
  inaccurate_ = false;
  TensorSet tensors;
  for (const auto& place : places.places) {
    const MutableTensorView view = view_of(place, {inputs_, outputs});
    const bool missing = !place.is_input() && view.buffer_bytes > 0 && untouched(view);
    const bool excused = place.tensor.optional && foreign;
    if (!missing) {
      tensors.add(place.tensor.name, view);
    } else if (!excused) {
      result.wrong += (result.wrong.empty() ? "" : "; ") + place.tensor.name + " was not written";
    }
  }
  if (const std::string names = overrun(places, outputs); !names.empty())
    result.wrong += (result.wrong.empty() ? "" : "; ") + ("wrote behind the end of " + names);
  if (!result.wrong.empty()) return result;
  add_verdict(result, check_forward(tensors));
  if (case_.backwards()) add_verdict(result, check_backward(tensors, reads));
  result.inaccurate = inaccurate_;
  return result;
}

TensorSet AnswerChecker::of_roles(const TensorSet& tensors, bool inputs, bool outputs, bool gradients) const {
  TensorSet chosen;
  for (const auto& place : places_.places) {
    const Role role = place.tensor.role;
    const bool wanted = verification::is_read(role) ? inputs : role == Role::gradient ? gradients : outputs;
    const MutableTensorView* const view = tensors.find(place.tensor.name);
    if (wanted && view != nullptr) chosen.add(place.tensor.name, *view);
  }
  return chosen;
}

verification::Verdict AnswerChecker::judge(const Expectation& expected, const TensorSet& results) {
  verification::Verdict strict = verification::compare(expected, results);
  if (strict.ok || !foreign_) return strict;
  Expectation slack = expected;
  for (auto& tensor : slack.tensors) tensor.bound.factor *= kForeignSlack;
  verification::Verdict lenient = verification::compare(slack, results);
  inaccurate_ = inaccurate_ || lenient.ok;
  return lenient.ok ? lenient : strict;
}

// With all bounds, since records tell the ratio of an error to the plain evaluation's.
Expectation AnswerChecker::expectation_of(Pass pass, const TensorSet& given, BackwardReads reads) const {
  verification::Case c = case_;
  if (reads == BackwardReads::own_state) c.variation.emplace_back("own_state");
  Expectation expected = c.operation->expect(c, pass, given);
  expected.include_rest();
  return expected;
}

verification::Verdict AnswerChecker::check_forward(const TensorSet& tensors) {
  if (!forward_)
    forward_ = expectation_of(Pass::forward, of_roles(tensors, true, false, false), BackwardReads::outputs);
  return judge(*forward_, of_roles(tensors, false, true, false));
}

verification::Verdict AnswerChecker::check_backward(const TensorSet& tensors, BackwardReads reads) {
  const auto expectation = [&](bool outputs) {
    return expectation_of(Pass::backward, of_roles(tensors, true, outputs, false), reads);
  };
  const TensorSet gradients = of_roles(tensors, false, false, true);
  if (reads == BackwardReads::outputs) return verification::compare(expectation(true), gradients);
  // Most expected gradients follow from the inputs alone, so all these contenders share them. For others, the
  // contender's outputs, checked before, are taken as given.
  if (!backward_ || backward_->of_outputs) backward_ = expectation(forward_->sampled);
  return judge(*backward_, gradients);
}

}  // namespace fovea::program
