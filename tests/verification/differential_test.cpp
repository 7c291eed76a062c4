// Calls that are carried elsewhere, as to a device: everything about them is checked all the same.
#include "verification/differential.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fovea::verification {
namespace {

int carried = 0;

const AttentionCalls kRight{.forward =
                                [](const ForwardTensors& tensors, const AttentionOptions& options) {
                                  ++carried;
                                  attention_forward(tensors, options);
                                },
                            .backward =
                                [](const BackwardTensors& tensors, const AttentionOptions& options) {
                                  ++carried;
                                  attention_backward(tensors, options);
                                }};

// A device that loses one call's answer.
const AttentionCalls kForgetful{.forward = [](const ForwardTensors&, const AttentionOptions&) {},
                                .backward = [](const BackwardTensors&, const AttentionOptions&) {}};

const core::Implementation& reference() {
  const auto all = core::all_implementations();
  return *std::find_if(all.begin(), all.end(), [](const auto& one) { return one.name == "reference"; });
}

// The case says cuda; its tensors lie on the host, where the reference makes what the answer must be close to.
core::Case case_of_pass(const std::string& pass) {
  return core::parse_case("pass=" + pass +
                          " b=2 hq=4 hkv=2 lq=9 lk=13 d=8 mask=causal_bottom_right device=cuda seed=3");
}

TEST(Differential, ChecksCallsThatAreCarriedElsewhere) {
  for (const char* pass : {"fwd", "bwd", "e2e"}) {
    carried = 0;
    const Outcome outcome = Differential(case_of_pass(pass), plain_variation(), kRight).run(reference());
    EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << pass << ": " << outcome.reason;
    EXPECT_GT(carried, 0) << pass;
  }
}

TEST(Differential, FindsAnAnswerThatWasNotBroughtBack) {
  for (const char* pass : {"fwd", "bwd", "e2e"}) {
    const Outcome outcome = Differential(case_of_pass(pass), plain_variation(), kForgetful).run(reference());
    EXPECT_EQ(outcome.kind, Outcome::Kind::failed) << pass;
  }
}

// Problems that are not checked as a whole ask the definition that came with the calls, for backward's inputs too.
TEST(Differential, AsksTheGivenDefinitionForLargeProblems) {
  static int forward, backward;
  forward = backward = 0;
  AttentionCalls calls{.forward = attention_forward, .backward = attention_backward};
  calls.definition.forward = [](const AttentionProblem& p, const ForwardTensors& tensors, const Sample& sample) {
    ++forward;
    return by_definition(p, tensors, sample);
  };
  calls.definition.backward = [](const AttentionProblem& p, const BackwardTensors& tensors, const Sample& sample) {
    ++backward;
    return by_definition(p, tensors, sample);
  };
  // Above 2^23 elements, and next to no work.
  const core::Case large = core::parse_case("pass=e2e b=1 hq=1 hkv=1 lq=300000 lk=3 d=32 mask=none seed=3");
  const Outcome outcome = Differential(large, plain_variation(), calls).run(reference());
  EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << outcome.reason;
  EXPECT_EQ(forward, 2);  // all rows for backward, the sample's for forward's check
  EXPECT_EQ(backward, 1);
  Differential(case_of_pass("e2e"), plain_variation(), calls).run(reference());
  EXPECT_EQ(forward, 2);
}

// fp32 tells nothing of such gradients: neither right nor wrong.
TEST(Differential, JudgesNoGradientsOfScoresBeyondFp32) {
  const core::Case c = core::parse_case("pass=bwd b=1 hq=1 lq=8 lk=8 d=8 scale=1e12 seed=3");
  const Outcome outcome = Differential(c, plain_variation()).run(reference());
  EXPECT_EQ(outcome.kind, Outcome::Kind::exempt) << outcome.reason;
  EXPECT_EQ(outcome.reason, kUnjudged);
}

}  // namespace
}  // namespace fovea::verification
