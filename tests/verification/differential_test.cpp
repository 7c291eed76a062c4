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
core::Case case_of(const std::string& pass) {
  return core::parse_case("pass=" + pass +
                          " b=2 hq=4 hkv=2 lq=9 lk=13 d=8 mask=causal_bottom_right device=cuda seed=3");
}

TEST(Differential, ChecksCallsThatAreCarriedElsewhere) {
  for (const char* pass : {"fwd", "bwd", "e2e"}) {
    carried = 0;
    const Outcome outcome = Differential(case_of(pass), plain_variation(), kRight).run(reference());
    EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << pass << ": " << outcome.reason;
    EXPECT_GT(carried, 0) << pass;
  }
}

TEST(Differential, FindsAnAnswerThatWasNotBroughtBack) {
  for (const char* pass : {"fwd", "bwd", "e2e"}) {
    const Outcome outcome = Differential(case_of(pass), plain_variation(), kForgetful).run(reference());
    EXPECT_EQ(outcome.kind, Outcome::Kind::failed) << pass;
  }
}

}  // namespace
}  // namespace fovea::verification
