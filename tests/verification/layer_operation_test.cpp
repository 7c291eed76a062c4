// Layers as operations: their lines, tensors and cost, wrong answers that must be noticed, and random cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "core/float16.h"
#include "cpu/isa.h"
#include "fovea/error.h"
#include "verification/differential.h"
#include "verification/layers/check.h"
#include "verification/layers/operation.h"
#include "verification/problem_line.h"

namespace fovea::verification {
namespace {

[[maybe_unused]] const bool kRegistered = (register_layers(), true);

std::vector<std::string> names_of(const std::string& line, Role role) {
  std::vector<std::string> names;
  const Case c = parse_case(line);
  for (const TensorSpec& one : c.operation->tensors(c)) {
    if (one.role == role) names.push_back(one.name);
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(LayerOperation, TensorsAreThoseOfTheKind) {
  EXPECT_EQ(names_of("op=mha_fused hq=2 d=4", Role::parameter), (Names{"qkv_weight", "out_weight"}));
  EXPECT_EQ(names_of("op=gqa hq=4 hkv=2 d=4 bias=yes", Role::parameter),
            (Names{"q_weight", "q_bias", "k_weight", "k_bias", "v_weight", "v_bias", "out_weight", "out_bias"}));
  EXPECT_EQ(names_of("op=mla pass=bwd hq=2 d=4 lq=3 lk=5 latent=2", Role::gradient),
            (Names{"dx", "dx_kv", "dq_down_weight", "dq_weight", "dkv_down_weight", "dk_weight", "dv_weight",
                   "dout_weight"}));
  EXPECT_EQ(names_of("op=mha lq=3 lk=5 d=4", Role::input), (Names{"x", "x_kv"}));
}

TEST(LayerOperation, CostCountsProjectionsAndAttention) {
  // Report C's second configuration: four projections of 4096 columns, and two products per head in attention.
  const double rows = 4096, width = 4096, attention = 4.0 * 32 * 4096 * 4096 * 128;
  const std::string sizes = " hq=32 lq=4k d=128 dtype=bf16";
  EXPECT_EQ(layer_operation(LayerKind::mha_fused).cost(parse_case("op=mha_fused pass=fwd" + sizes)).flops,
            8 * rows * width * width + attention);
  EXPECT_EQ(layer_operation(LayerKind::mha).cost(parse_case("op=mha pass=bwd" + sizes)).flops,
            16 * rows * width * width + 2.5 * attention);
}

TEST(LayerOperation, ExplainTellsPartsAndSavedState) {
  const Case c = parse_case("op=mla pass=e2e hq=2 lq=8 d=16 latent=8");
  const CasePlan plan = c.operation->plan(c, "cpu.scalar");
  EXPECT_EQ(plan.implementation, "cpu.scalar");
  EXPECT_NE(plan.forward_tiles.find("attention cpu.scalar"), std::string::npos) << plan.forward_tiles;
  EXPECT_FALSE(plan.saved.empty());
  EXPECT_GT(plan.saved_bytes, 0);
  const std::string refusal = c.operation->plan(c, "cpu.avx512_bf16").refusal();
  const std::string missing = cpu::missing(cpu::Isa::avx512_bf16);
  EXPECT_TRUE(refusal.starts_with(missing.empty() ? "takes bf16 only" : missing)) << refusal;
}

TEST(LayerOperation, HeadsThatDoNotDivideAreRefused) {
  try {
    parse_case("op=gqa hq=6 hkv=4 d=8");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("hq must be a multiple of hkv"), std::string::npos) << error.what();
  }
}

// A kind that is not told apart from another without a size must say it; the message has words to copy.
TEST(LayerOperation, LinesMustSayTheSizeThatMakesTheirKind) {
  for (const auto& [kind, key, example] :
       {std::array{"gqa", "hkv", "such as hq=32 hkv=8"}, {"mla", "latent", "such as hq=32 d=128 latent=512"}}) {
    const std::string line = std::string("op=") + kind + " hq=4 d=8";
    try {
      (void)parse_case(line);
      FAIL() << "not refused: " << line;
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.status(), Status::invalid_argument);
      EXPECT_NE(text.find(std::string("must say `") + key + "`"), std::string::npos) << text;
      EXPECT_NE(text.find(line), std::string::npos) << text;
      EXPECT_NE(text.find(example), std::string::npos) << text;
    }
  }
  EXPECT_EQ(parse_case("op=gqa hq=4 hkv=4 d=8")["hkv"], "4") << "as many as query heads, if the line says so";
  EXPECT_EQ(parse_case("op=mla hq=4 d=8 latent=6")["latent_kv"], "6");
  EXPECT_NE(problem_line_help().find("key heads, a divisor of hq (required)"), std::string::npos);
}

// A problem's expected results come from the evaluator of its device.
TEST(LayerOperation, TheEvaluatorOfTheDeviceIsAsked) {
  struct Counting final : LayerEvaluator {
    Matrix<double> multiply(const Operand<double>& a, const Operand<double>& b,
                            const Matrix<double>& added) const override {
      return LayerEvaluator::multiply(a, b, added);
    }
    Matrix<double> multiply(const Operand<double>& a, const Operand<float>& b) const override {
      ++products;
      return LayerEvaluator::multiply(a, b);
    }
    Matrix<float> multiply(const Operand<float>& a, const Operand<float>& b, const Matrix<float>& added,
                           const PlainVariant& variant) const override {
      ++plain_products;
      return LayerEvaluator::multiply(a, b, added, variant);
    }
    mutable int products = 0, plain_products = 0;
  };
  static const Counting counting{};
  static DeviceKind asked_for;
  const Case c = parse_case("op=mha pass=fwd hq=2 lq=9 d=8 dtype=bf16 seed=123");
  std::vector<HostTensor> memory;
  TensorSet inputs;
  for (TensorSpec& spec : c.operation->tensors(c)) {
    if (!is_read(spec.role)) continue;
    const HostTensor& one = memory.emplace_back(spec, "contiguous", 0);
    fill(c, spec, one.view());
    inputs.add(spec.name, one.view());
  }
  asked_for = DeviceKind::cuda;
  evaluate_layers_by([](DeviceKind device) -> const LayerEvaluator& {
    asked_for = device;
    return counting;
  });
  const Expectation expected = c.operation->expect(c, Pass::forward, inputs);
  evaluate_layers_by(nullptr);
  EXPECT_EQ(asked_for, DeviceKind::cpu);
  EXPECT_EQ(counting.products % 4, 0) << "four projections";
  EXPECT_GT(counting.products, 0);
  EXPECT_GE(counting.plain_products, counting.products);
}

// The inputs and exact results of a case, of which one element can be made wrong.
class LayerAnswers : public testing::Test {
 protected:
  LayerAnswers() {
    const Case c = parse_case("op=gqa pass=bwd hq=2 hkv=1 lq=9 d=8 e=12 dtype=bf16 seed=3");
    for (TensorSpec& spec : c.operation->tensors(c)) {
      const HostTensor& memory = memory_.emplace_back(spec, "contiguous", 0);
      if (is_read(spec.role)) fill(c, spec, memory.view());
      set_.add(spec.name, memory.view());
    }
    expected_ = c.operation->expect(c, Pass::backward, set_);
    for (const ExpectedTensor& one : expected_.tensors) {
      const MutableTensorView view = set_[one.name];
      for (std::size_t n = 0; n < one.reference.values.size(); ++n)
        core::store_from_float(view.data, view.dtype, static_cast<std::int64_t>(n),
                               static_cast<float>(one.reference.values[n]));
    }
  }

  std::vector<HostTensor> memory_;
  TensorSet set_;
  Expectation expected_;
};

TEST_F(LayerAnswers, RoundedReferencesAreRight) {
  const Verdict verdict = compare(expected_, set_);
  EXPECT_TRUE(verdict.ok) << verdict.reason();
  EXPECT_EQ(verdict.tensors.size(), 5u);
}

TEST_F(LayerAnswers, AWrongElementOfAnyGradientIsNoticed) {
  for (const ExpectedTensor& one : expected_.tensors) {
    const MutableTensorView view = set_[one.name];
    const float right = core::load_as_float(view.data, view.dtype, 7);
    double largest = 0;
    for (const double value : one.reference.values) largest = std::max(largest, std::abs(value));
    core::store_from_float(view.data, view.dtype, 7, right + static_cast<float>(largest) / 2);
    EXPECT_FALSE(compare(expected_, set_).ok) << one.name;
    core::store_from_float(view.data, view.dtype, 7, right);
  }
  EXPECT_TRUE(compare(expected_, set_).ok);
}

TEST_F(LayerAnswers, AGradientThatWasNotComputedIsNoticed) {
  const MutableTensorView view = set_["dq_weight"];
  std::fill_n(static_cast<std::uint16_t*>(view.data), 16 * 12, std::uint16_t{0});
  EXPECT_FALSE(compare(expected_, set_).ok);
}

// A gradient between two norms exceeds 65504 in one row: fp16 cannot hold it, bf16 can.
TEST(LayerOperation, MayOverflowBetweenStepsWhereThePlainEvaluationDoes) {
  for (const char* type : {"fp16", "bf16"}) {
    Case c = parse_case(
        "op=mla pass=bwd hq=8 lk=2 d=56 dv=32 e=5 ekv=1 latent=32 latent_kv=3 qk_norm=yes latent_norm=yes scale=0.125 "
        "data=integers seed=3371399374 dtype=" +
        std::string(type));
    c.variation = c.operation->variation_of(c);
    Differential differential(c, trial_of(c));
    const auto all = c.operation->implementations();
    const auto scalar = std::find_if(all.begin(), all.end(), [](const auto& one) { return one.name == "cpu.scalar"; });
    ASSERT_NE(scalar, all.end());
    const Outcome outcome = differential.run(*scalar);
    EXPECT_EQ(outcome.kind, Outcome::Kind::passed) << type << ": " << outcome.reason;
  }
}

class LayerCases : public testing::TestWithParam<LayerKind> {};

TEST_P(LayerCases, RandomCasesAreRight) {
  const Operation& operation = layer_operation(GetParam());
  int passed = 0;
  for (std::uint64_t n = 0; n < 40; ++n) {
    Case c = operation.random_case(11, n, {});
    c.variation = operation.variation_of(c);
    EXPECT_EQ(parse_case(line_of(c)).values, c.values) << line_of(c);
    Differential differential(c, trial_of(c));
    for (const ImplementationFacts& one : operation.implementations()) {
      if (one.device != DeviceKind::cpu || !one.unavailable.empty()) continue;
      const Outcome outcome = differential.run(one);
      EXPECT_NE(outcome.kind, Outcome::Kind::failed) << one.name << " on " << line_of(c) << "\n" << outcome.reason;
      passed += outcome.kind == Outcome::Kind::passed ? 1 : 0;
    }
  }
  EXPECT_GE(passed, 80);
}

INSTANTIATE_TEST_SUITE_P(Kinds, LayerCases, testing::ValuesIn(kLayerKinds),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

}  // namespace
}  // namespace fovea::verification
