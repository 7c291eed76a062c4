// Models as an operation: their lines, refusals, wrong answers that must be noticed, and random cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/float16.h"
#include "fovea/error.h"
#include "model/parameters.h"
#include "model/problem_line.h"
#include "verification/differential.h"
#include "verification/model/operation.h"
#include "verification/problem_line.h"

namespace fovea::verification {
namespace {

[[maybe_unused]] const bool kModelsRegistered = (register_operation(model_operation()), true);

TEST(ModelOperation, APresetHasItsSizes) {
  const Case c = parse_case("op=model pass=step model=report-d1:sm b=2 lq=512");
  EXPECT_EQ(
      line_of(c),
      "op=model pass=step model=report-d1:sm b=2 lq=512 layers=12 width=768 heads=12 hidden=3072 vocabulary=10000 "
      "params=128625408 dtype=fp32 activations=kept accumulate=no device=cpu data=normal place=contiguous seed=0");
  EXPECT_EQ(parse_case(line_of(c)).values, c.values);
}

TEST(ModelOperation, ReadsTheLinesOfEarlierRecords) {
  const std::string sizes =
      " model=report-d1:sm b=1 lq=16 layers=12 width=768 heads=12 hidden=3072 vocabulary=10000 params=128625408 "
      "dtype=fp32 device=cpu";
  for (const char* const pass : {"fwd", "bwd", "e2e", "step_fwd", "step_rest", "step"}) {
    const std::string line = "op=model pass=" + std::string(pass) + sizes;
    EXPECT_EQ(line_of(parse_case(line)).substr(0, line.find(" device=")), line.substr(0, line.find(" device=")));
  }
}

TEST(ModelOperation, ParametersAreThoseOfTheMap) {
  for (const model::Preset& one : model::presets())
    EXPECT_EQ(model::parameter_count(one.config), model::ParameterMap(one.config).count()) << one.name;
  EXPECT_EQ(model::parameter_count({.width = std::int64_t{1} << 40}), INT64_MAX);
}

std::string refusal(const std::string& line) {
  try {
    (void)parse_case(line);
  } catch (const Error& error) {
    return error.details().problem + " " + error.details().got;
  }
  return "accepted";
}

TEST(ModelOperation, RefusesWhatIsNoModel) {
  EXPECT_NE(refusal("op=model layers=3 model=report-d1:sm").find("a preset has its own sizes"), std::string::npos);
  EXPECT_NE(refusal("op=model width=12 heads=5").find("the width does not split into heads"), std::string::npos);
  EXPECT_NE(refusal("op=model width=12 heads=4").find("rotary"), std::string::npos);
  EXPECT_NE(refusal("op=model layers=0").find("no size of a model"), std::string::npos);
  EXPECT_NE(refusal("op=model layers=1000000000").find("more blocks"), std::string::npos);
  EXPECT_NE(refusal("op=model b=0").find("no sequences"), std::string::npos);
  EXPECT_NE(refusal("op=model lq=0").find("no size of a model"), std::string::npos);
  EXPECT_NE(refusal("op=model lq=1000000k").find("beyond the positions"), std::string::npos);
  EXPECT_NE(refusal("op=model params=7").find("another number of parameters"), std::string::npos);
  EXPECT_NE(refusal("op=model dtype=fp16").find("not a value of `dtype`"), std::string::npos);
  EXPECT_NE(refusal("op=model model=sm").find("not a value of `model`"), std::string::npos);
  EXPECT_NE(refusal("op=model pass=fwd accumulate=yes").find("has no meaning here"), std::string::npos);
}

TEST(ModelOperation, AGpuIsRefusedWithTheVerbThatTakesIt) {
  const Case c = parse_case("op=model device=cuda");
  EXPECT_NE(c.operation->plan(c, "").refusal().find("fovea profile --device cuda"), std::string::npos);
}

// The inputs and exact results of a step, of which some can be made wrong.
class ModelAnswers : public testing::TestWithParam<const char*> {
 protected:
  ModelAnswers() {
    const Case c =
        parse_case("op=model pass=step_rest b=2 lq=9 layers=2 width=16 heads=2 hidden=24 vocabulary=13 seed=3 dtype=" +
                   std::string(GetParam()));
    for (TensorSpec& spec : c.operation->tensors(c)) {
      const HostTensor& memory = memory_.emplace_back(spec, "contiguous", 0);
      if (is_read(spec.role)) fill(c, spec, memory.view());
      set_.add(spec.name, memory.view());
    }
    expected_ = c.operation->expect(c, Pass::backward, set_);
    expected_.include_rest();
    if (expected_.measure_more) expected_.measure_more(expected_);  // once, not for every wrong answer
    expected_.measure_more = {};
    for (const ExpectedTensor& one : expected_.tensors) {
      float* const values = static_cast<float*>(set_[one.name].data);
      std::ranges::transform(one.reference.values, values, [](double value) { return static_cast<float>(value); });
    }
  }

  std::vector<HostTensor> memory_;
  TensorSet set_;
  Expectation expected_;
};

TEST_P(ModelAnswers, RoundedReferencesAreRight) {
  const Verdict verdict = compare(expected_, set_);
  EXPECT_TRUE(verdict.ok) << verdict.reason();
  EXPECT_EQ(verdict.tensors.size(), 2u * (2 * 7 + 3)) << "gradients and new weights";
}

TEST_P(ModelAnswers, AWrongElementOfAnyResultIsNoticed) {
  for (const ExpectedTensor& one : expected_.tensors) {
    float& value = static_cast<float*>(set_[one.name].data)[5];
    const float right = value;
    double largest = 0;
    for (const double each : one.reference.values) largest = std::max(largest, std::abs(each));
    value += static_cast<float>(largest) / 2;
    EXPECT_FALSE(compare(expected_, set_).ok) << one.name;
    value = right;
  }
}

TEST_P(ModelAnswers, AStepThatWasNotMadeIsNoticed) {
  for (const ExpectedTensor& one : expected_.tensors) {
    if (!one.name.starts_with("updated.")) continue;
    const TensorView before = set_[one.name.substr(8)];
    float* const values = static_cast<float*>(set_[one.name].data);
    const std::vector<float> right(values, values + one.reference.values.size());
    std::copy_n(static_cast<const float*>(before.data), right.size(), values);
    EXPECT_FALSE(compare(expected_, set_).ok) << one.name;
    std::ranges::copy(right, values);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ModelAnswers, testing::Values("fp32", "bf16"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(ModelOperation, RandomCasesAreRight) {
  const Operation& operation = model_operation();
  int passed = 0;
  for (std::uint64_t n = 0; n < 40; ++n) {
    const Case c = operation.random_case(11, n, {});
    EXPECT_EQ(parse_case(line_of(c)).values, c.values) << line_of(c);
    Differential differential(c, trial_of(c));
    const Outcome outcome = differential.run(operation.implementations().front());
    EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << line_of(c) << "\n" << outcome.reason;
    passed += outcome.kind == Outcome::Kind::passed ? 1 : 0;
  }
  EXPECT_EQ(passed, 40);
}

}  // namespace
}  // namespace fovea::verification
