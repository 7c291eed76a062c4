// Calls that run on a device are checked like calls on the host.
#include "verification/differential.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "verification/attention/check.h"
#include "verification/attention/operation.h"
#include "verification/problem_line.h"

namespace fovea::verification {
namespace {

int copies_back = 0;

// A call in host memory; if `forgetful`, its results are not copied back.
class CallInPlace final : public DeviceCall {
 public:
  CallInPlace(const TensorSet& host, const std::vector<std::string>& written, bool forgetful) : tensors_(host) {
    if (!forgetful) return;
    for (const std::string& name : written) {
      TensorSpec spec{.name = name, .dtype = host[name].dtype, .sizes = host[name].sizes};
      spec.strides = dense_strides(spec.sizes);
      lost_.emplace_back(spec, "contiguous", 0);
      tensors_.remove(name);
      tensors_.add(name, lost_.back().view());
    }
  }
  const TensorSet& tensors() const override { return tensors_; }
  CallSettings settings(CallSettings on_host) const override { return on_host; }
  void copy_back() override { ++copies_back; }

 private:
  TensorSet tensors_;
  std::vector<HostTensor> lost_;
};

template <bool Forgetful>
std::unique_ptr<DeviceCall> call_in_place(const TensorSet& host, const std::vector<std::string>& written, Pass,
                                          const CallSettings&) {
  return std::make_unique<CallInPlace>(host, written, Forgetful);
}

ImplementationFacts reference() {
  const auto all = attention_operation().implementations();
  return *std::find_if(all.begin(), all.end(), [](const auto& one) { return one.name == "reference"; });
}

Case case_of_pass(const std::string& pass) {
  return parse_case("pass=" + pass + " b=2 hq=4 hkv=2 lq=9 lk=13 d=8 mask=causal_bottom_right seed=3");
}

TEST(Differential, ChecksCallsOnADevice) {
  for (const char* pass : {"fwd", "bwd", "e2e"}) {
    copies_back = 0;
    const Outcome outcome = Differential(case_of_pass(pass), {}, call_in_place<false>).run(reference());
    EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << pass << ": " << outcome.reason;
    EXPECT_GT(copies_back, 0) << pass;
  }
}

TEST(Differential, FailsResultsThatWereNotCopiedBack) {
  for (const char* pass : {"fwd", "bwd", "e2e"}) {
    const Outcome outcome = Differential(case_of_pass(pass), {}, call_in_place<true>).run(reference());
    EXPECT_EQ(outcome.kind, Outcome::Kind::failed) << pass;
  }
}

// Sampled problems use the given evaluator, also for the inputs of backward.
TEST(Differential, AsksTheGivenEvaluatorForLargeProblems) {
  static int forward, backward;
  forward = backward = 0;
  evaluate_attention_by([](DeviceKind) {
    ReferenceEvaluator evaluator;
    evaluator.forward = [](const AttentionProblem& p, const ForwardTensors& tensors, const Sample& sample) {
      ++forward;
      return evaluate_reference(p, tensors, sample);
    };
    evaluator.backward = [](const AttentionProblem& p, const BackwardTensors& tensors, const Sample& sample) {
      ++backward;
      return evaluate_reference(p, tensors, sample);
    };
    return evaluator;
  });
  // Above 2^23 elements, and next to no work.
  for (const auto& [pass, forwards] : {std::pair{"fwd", 1}, {"e2e", 1}, {"bwd", 1}}) {
    forward = backward = 0;
    const Case large = parse_case("b=1 hq=1 hkv=1 lq=300000 lk=3 d=32 mask=none seed=3 pass=" + std::string(pass));
    const Outcome outcome = Differential(large).run(reference());
    EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << outcome.reason;
    EXPECT_EQ(forward, forwards) << pass;  // the sample's rows for forward's check, or all rows for backward
    EXPECT_EQ(backward, large.backwards() ? 1 : 0) << pass;
  }
  forward = backward = 0;
  Differential(case_of_pass("e2e")).run(reference());
  EXPECT_EQ(forward, 0);
  EXPECT_EQ(backward, 0);
  evaluate_attention_by({});
}

// fp32 tells nothing of such gradients: neither right nor wrong.
TEST(Differential, JudgesNoGradientsOfScoresBeyondFp32) {
  const Outcome outcome =
      Differential(parse_case("pass=bwd b=1 hq=1 lq=8 lk=8 d=8 scale=1e12 seed=3")).run(reference());
  EXPECT_EQ(outcome.kind, Outcome::Kind::exempt) << outcome.reason;
  EXPECT_EQ(outcome.reason, kUnjudged);
}

}  // namespace
}  // namespace fovea::verification
