// The checks: they pass right answers of every family, and fail answers that are wrong in one place.
#include "verification/attention/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/float16.h"
#include "verification/attention/case_tensors.h"
#include "verification/attention/evaluation.h"
#include "verification/attention/plain.h"

namespace fovea::verification {
namespace {

AttentionOptions by_reference(const verification::AttentionCase& c) {
  AttentionOptions options = options_of(c);
  options.implementation = "reference";
  return options;
}

CaseTensors solved(const verification::AttentionCase& c) {
  CaseTensors tensors = make_tensors(c);
  attention_forward(tensors.forward(), by_reference(c));
  if (c.pass != verification::CasePass::fwd) attention_backward(tensors.backward(), by_reference(c));
  return tensors;
}

AttentionProblem backward_problem(const verification::AttentionCase& c) {
  AttentionProblem problem = c.problem;
  problem.pass = Pass::backward;
  return problem;
}

// P = 1 / len_k is rounded once; exp(-lse) has the error of lse too, which is larger than 1.
TEST(PlainBackward, HasTheErrorOfLseWhereFlashAttentionHasIt) {
  double worst[2] = {0, 0};
  for (const verification::AttentionCase& c :
       verification::attention_sweep("pass=bwd hq=1 lq=4 lk=37,41,43,47,53,59,61,67,71,73 d=8 scale=0 dtype=fp32")) {
    const CaseTensors tensors = solved(c);
    BackwardTensors inputs = tensors.backward();
    inputs.out = inputs.lse = inputs.delta = {};
    const AttentionProblem p = backward_problem(c);
    const Sample all = sample_of(p, 1);
    const std::vector<double> wanted = evaluate_reference(p, inputs, all).dv.values;
    for (const bool divided_last : {false, true}) {
      const std::vector<double> got = evaluate_plain(p, inputs, all, {.divided_last = divided_last}).dv.values;
      for (std::size_t n = 0; n < got.size(); ++n)
        worst[divided_last] = std::max(worst[divided_last], std::abs(got[n] - wanted[n]) / std::abs(wanted[n]));
    }
  }
  EXPECT_GT(worst[1], 1.5 * worst[0]);
}

// exp2 of scores and lse that are multiplied by log2(e) has errors of its own, of the same size.
TEST(PlainBackward, InBaseTwoRoundsOtherExponents) {
  const verification::AttentionCase c = verification::attention_case("pass=bwd hq=2 hkv=1 lq=9 lk=37 d=8 seed=1");
  const CaseTensors tensors = solved(c);
  const AttentionProblem p = backward_problem(c);
  const Sample all = sample_of(p, 1);
  BackwardTensors bare = tensors.backward();
  bare.out = bare.lse = bare.delta = {};
  for (const BackwardTensors& inputs : {tensors.backward(), bare}) {
    for (const bool divided_last : {false, true}) {
      const RowValues wanted = evaluate_reference(p, inputs, all).dq;
      const RowValues base_e = evaluate_plain(p, inputs, all, {.divided_last = divided_last}).dq,
                      base_2 = evaluate_plain(p, inputs, all, {.base_2 = true, .divided_last = divided_last}).dq;
      EXPECT_NE(base_2.values, base_e.values);
      EXPECT_LT(error_of(base_2, wanted).rel_l2, 4 * error_of(base_e, wanted).rel_l2);
    }
  }
}

// Fused sums start from the former values, so every term is rounded at their size; else one addition is.
TEST(PlainBackward, FusedSumsStartFromFormerValues) {
  const verification::AttentionCase c = verification::attention_case("pass=bwd hq=2 hkv=1 lq=29 lk=37 d=8 seed=1");
  const CaseTensors tensors = solved(c);
  const AttentionProblem p = backward_problem(c);
  const Sample all = sample_of(p, 1);
  std::vector<float> former(static_cast<std::size_t>(2 * 37 * 8), 81.0f);
  const TensorView queries = contiguous(former.data(), {1, 2, 29, 8}), keys = contiguous(former.data(), {1, 1, 37, 8});
  const Gradients before{.dq = queries, .dk = keys, .dv = keys};
  BackwardValues wanted = evaluate_reference(p, tensors.backward(), all);
  add_before(before, wanted, false);
  const BackwardValues added = evaluate_plain(p, tensors.backward(), all, {}, before),
                       started = evaluate_plain(p, tensors.backward(), all, {.fused = true}, before);
  constexpr double kHalfUlp = 0x1p-18;  // of numbers from 64 to 128
  EXPECT_LT(error_of(added.dv, wanted.dv).max_abs, 1.1 * kHalfUlp);
  for (const auto gradient : {&BackwardValues::dq, &BackwardValues::dk, &BackwardValues::dv})
    EXPECT_GT(error_of(started.*gradient, wanted.*gradient).rel_l2,
              2 * error_of(added.*gradient, wanted.*gradient).rel_l2);
}

TEST(Check, PassesTheReferenceOnEveryFamily) {
  for (const std::string_view family : verification::kDataFamilies) {
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      for (const char* mask : {"none", "causal_top_left", "causal_bottom_right", "window_top_left left=3 right=1",
                               "window_bottom_right left=2 right=0"}) {
        for (const char* lengths : {"lq=9 lk=20", "lq=20 lk=9", "lq=1 lk=1"}) {
          const verification::AttentionCase c =
              verification::attention_case("pass=e2e b=2 hq=4 hkv=2 d=5 dv=3 " + std::string(lengths) +
                                           " dtype=" + dtype + " mask=" + mask + " data=" + std::string(family));
          const CaseTensors tensors = solved(c);
          const Verdict forward = check_forward(c.problem, tensors.forward(), 1);
          EXPECT_TRUE(forward.ok) << verification::line_of(c) << "\n" << forward.reason();
          const Verdict backward = check_backward(backward_problem(c), tensors.backward(), 1);
          EXPECT_TRUE(backward.ok) << verification::line_of(c) << "\n" << backward.reason();
        }
      }
    }
  }
}

// The answer to a window that is wrong by one key at one end is no answer to the right one.
TEST(Check, FailsAWindowThatIsWrongByOneKey) {
  for (const char* mask :
       {"window left=9 right=3", "window_top_left left=0 right=2", "window_bottom_right left=5 right=1"}) {
    const AttentionCase right = attention_case("pass=e2e hq=2 hkv=1 lq=40 d=8 seed=5 mask=" + std::string(mask));
    for (const auto& [left, right_bound] : {std::pair{1, 0}, {-1, 0}, {0, 1}, {0, -1}}) {
      AttentionCase wrong = right;
      wrong.problem.mask.left = std::max<std::int64_t>(wrong.problem.mask.left + left, 0);
      wrong.problem.mask.right += right_bound;
      if (wrong == right) continue;
      SCOPED_TRACE(line_of(wrong));
      const CaseTensors tensors = solved(wrong);
      EXPECT_FALSE(check_forward(right.problem, tensors.forward(), 1).ok);
      BackwardTensors answered = tensors.backward();
      EXPECT_FALSE(check_backward(backward_problem(right), answered, 1).ok);
    }
  }
}

TEST(Check, FailsOneWrongElementOfAnyTensor) {
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    const verification::AttentionCase c =
        verification::attention_case("pass=e2e b=2 hq=4 hkv=2 lq=33 d=16 seed=3 dtype=" + std::string(dtype));
    const CaseTensors tensors = solved(c);
    // Gradients first: what backward was given must not change before its answer is checked.
    for (const auto* tensor : {&tensors.dq, &tensors.dk, &tensors.dv, &tensors.out, &tensors.lse}) {
      const bool forward = tensor == &tensors.out || tensor == &tensors.lse;
      const auto check = [&] {
        return forward ? check_forward(c.problem, tensors.forward(), 1)
                       : check_backward(backward_problem(c), tensors.backward(), 1);
      };
      const std::int64_t index = tensor->view().buffer_bytes / size_of(tensor->view().dtype) - 3;
      const float before = core::load_as_float(tensor->view().data, tensor->view().dtype, index);
      EXPECT_TRUE(check().ok);
      core::store_from_float(tensor->view().data, tensor->view().dtype, index, before + 0.1f);
      EXPECT_FALSE(check().ok);
      core::store_from_float(tensor->view().data, tensor->view().dtype, index, before);
    }
  }
}

TEST(Check, OnlyAnLseBeyondFp32IsInfinite) {
  const verification::AttentionCase c = verification::attention_case("lq=8 d=16 scale=1e38 seed=1"),
                                    within = verification::attention_case("lq=8 d=16 scale=1e37");
  const CaseTensors beyond = solved(c), held = solved(within);
  const Verdict verdict = check_forward(c.problem, beyond.forward(), 1);
  EXPECT_TRUE(verdict.ok) << verdict.reason();
  for (const float wrong : {-HUGE_VALF, 3e38f, 0.0f}) {
    const CaseTensors tensors = solved(c);
    core::store_from_float(tensors.lse.view().data, DType::fp32, 0, wrong);
    EXPECT_FALSE(check_forward(c.problem, tensors.forward(), 1).ok) << wrong;
  }
  EXPECT_TRUE(check_forward(within.problem, held.forward(), 1).ok);
  for (const float wrong : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
    core::store_from_float(held.lse.view().data, DType::fp32, 0, wrong);
    EXPECT_FALSE(check_forward(within.problem, held.forward(), 1).ok) << wrong;
  }
}

TEST(Check, AGradientBeyondFp16IsInfinite) {
  const verification::AttentionCase c =
      verification::attention_case("pass=e2e lq=8 lk=1 d=16 dtype=fp16");  // dv is the sum of dout
  const CaseTensors tensors = make_tensors(c);
  const auto dout = tensors.dout.view(), dv = tensors.dv.view();
  for (std::int64_t n = 0; n < 8 * 16; ++n) core::store_from_float(dout.data, dout.dtype, n, n % 16 == 0 ? 6e4f : 1.0f);
  attention_forward(tensors.forward(), by_reference(c));
  attention_backward(tensors.backward(), by_reference(c));
  EXPECT_EQ(core::load_as_float(dv.data, dv.dtype, 0), HUGE_VALF);
  const Verdict verdict = check_backward(backward_problem(c), tensors.backward(), 1);
  EXPECT_TRUE(verdict.ok) << verdict.reason();
  core::store_from_float(dv.data, dv.dtype, 1, HUGE_VALF);
  EXPECT_FALSE(check_backward(backward_problem(c), tensors.backward(), 1).ok);
}

// Scores of one query are beyond what fp32 can tell apart: its gradient and those of the keys that it sees are not
// compared, all others are.
TEST(Check, BackwardIsComparedOnlyWhereFp32DeterminesTheProbabilities) {
  const verification::AttentionCase c = verification::attention_case("pass=e2e lq=6 d=4 mask=causal_top_left seed=2");
  const CaseTensors tensors = make_tensors(c);
  const auto q = tensors.q.view();
  for (std::int64_t n = 2 * 4; n < 3 * 4; ++n) core::store_from_float(q.data, q.dtype, n, 1e9f);
  attention_forward(tensors.forward(), by_reference(c));
  attention_backward(tensors.backward(), by_reference(c));
  const Expectation expected = expect_backward(backward_problem(c), tensors.backward(), 1);
  const auto compared = [&expected](std::size_t tensor) {
    std::vector<std::int64_t> rows;
    for (const RowIndex& row : expected.tensors[tensor].reference.rows) rows.push_back(row.index);
    return rows;
  };
  EXPECT_EQ(compared(0), (std::vector<std::int64_t>{0, 1, 3, 4, 5}));
  EXPECT_EQ(compared(1), (std::vector<std::int64_t>{3, 4, 5}));
  EXPECT_EQ(compared(2), (std::vector<std::int64_t>{3, 4, 5}));
  EXPECT_TRUE(compare(expected, tensors.backward()).ok);
  core::store_from_float(tensors.dk.view().data, DType::fp32, 3 * 4, 1e3f);
  EXPECT_FALSE(compare(expected, tensors.backward()).ok);
}

TEST(Check, FailsADroppedKey) {
  const verification::AttentionCase c = verification::attention_case("lq=40 lk=65 d=16"),
                                    shorter = verification::attention_case("lq=40 lk=64 d=16");
  const CaseTensors tensors = make_tensors(c), wrong = make_tensors(shorter);
  attention_forward(wrong.forward(), by_reference(shorter));
  ForwardTensors answer = tensors.forward();
  answer.out = wrong.out.view();
  answer.lse = wrong.lse.view();
  EXPECT_FALSE(check_forward(c.problem, answer, 1).ok);
}

// Answers of the engine that `fovea verify` found outside the rule by luck or by the plain evaluation's order:
// - sums of 120 products of one size and sign err more if P is divided after they are added;
// - with base 2, all scores have the rounding error of scale * log2(e);
// - the first row sees one key, and its lse is a score of -2613, while other rows average the errors of many.
TEST(Check, PassesOtherOrdersOfTheFormula) {
  for (const char* line :
       {"lk=120 d=1 scale=0.05 data=ramps seed=902441123",
        "lq=9 d=1 dv=2 mask=causal scale=0.5773502691896258 data=sink seed=4274590692",
        "hq=2 hkv=1 lq=36 d=95 dv=256 dtype=bf16 mask=causal scale=0.5 data=outliers seed=2751365337"}) {
    const verification::AttentionCase c = verification::attention_case(line);
    for (const char* name : {"cpu.avx2", "cpu.avx512", "cpu.avx512_bf16", "cpu.amx"}) {
      const CaseTensors tensors = make_tensors(c);
      AttentionOptions options = options_of(c);
      options.implementation = name;
      try {
        attention_forward(tensors.forward(), options);
      } catch (const Error& error) {
        ASSERT_EQ(error.status(), Status::unsupported) << error.what();
        continue;  // this machine lacks the instructions, or it takes another type
      }
      const Verdict verdict = check_forward(c.problem, tensors.forward(), 1);
      EXPECT_TRUE(verdict.ok) << name << " " << line << ": " << verdict.reason();
    }
  }
}

void scale_row(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t i, double factor) {
  const std::int64_t first = b * view.strides[0] + h * view.strides[1] + i * view.strides[2];
  void* const data = const_cast<void*>(view.data);
  for (std::int64_t at = first; at < first + view.sizes[3]; ++at)
    core::store_from_float(data, view.dtype, at,
                           static_cast<float>(factor * core::load_as_float(view.data, view.dtype, at)));
}

Expectation without_more(Expectation expected) {
  expected.measure_more = {};
  return expected;
}

// All keys but the sink are equal, and so are their P: one rounding moves a whole row, and the plain evaluation was
// lucky. So was a baseline, but less: its error was 5.5 units.
TEST(Check, MeasuresMoreWhereEqualKeysLeaveTheErrorToLuck) {
  const AttentionCase c = attention_case(
      "b=2 hq=14 hkv=2 lq=5 lk=9 d=64 mask=causal_bottom_right data=sink place=broadcast seed=2369216165");
  for (const auto& [units, passes] : {std::pair{6, true}, {16, false}}) {
    const CaseTensors tensors = solved(c);
    const Expectation expected = expect_forward(c.problem, tensors.forward(), 1);
    for (const RowIndex& row : every_query(c.problem))
      scale_row(tensors.out.view(), row.batch, row.head, row.index, 1 + units * 0x1p-24);
    EXPECT_FALSE(compare(without_more(expected), tensors.forward()).ok);
    const Verdict verdict = compare(expected, tensors.forward());
    EXPECT_EQ(verdict.ok, passes) << verdict.reason();
  }
}

// The largest row of dq sees 46 of 127 keys, one of which gives nearly all of it: its error is that of one dS, which
// every order of summation rounds alike.
TEST(Check, MeasuresMoreWhereOneRowOutweighsAllOthers) {
  const AttentionCase c = attention_case(
      "pass=bwd b=2 lq=389 lk=127 d=3 dv=64 dtype=bf16 mask=causal_bottom_right data=denormal seed=3304943687");
  for (const auto& [units, passes] : {std::pair{1.5, true}, {16.0, false}}) {
    const CaseTensors tensors = make_tensors(c, DType::fp32);
    attention_forward(tensors.forward(), by_reference(c));
    attention_backward(tensors.backward(), by_reference(c));
    AttentionProblem problem = backward_problem(c);
    problem.result_dtype = DType::fp32;
    BackwardTensors inputs = tensors.backward();  // as for an implementation that reads its own saved state
    inputs.out = inputs.lse = {};
    const Expectation expected = expect_backward(problem, inputs, 1);
    scale_row(tensors.dq.view(), 0, 0, 307, 1 + units * 0x1p-8);
    EXPECT_FALSE(compare(without_more(expected), tensors.backward()).ok);
    const Verdict verdict = compare(expected, tensors.backward());
    EXPECT_EQ(verdict.ok, passes) << verdict.reason();
  }
}

// All scores are 0 in fp32, so P of each of the 32 keys is exactly 1/32, and dv = dout / 32. An exp that is accurate to
// a unit in the last place gives the next number.
TEST(Check, MeasuresMoreWhereEqualProbabilitiesAreAPowerOfTwo) {
  const AttentionCase c =
      attention_case("pass=bwd b=3 hq=1 lq=1 lk=32 d=31 dtype=fp32 mask=none data=denormal seed=993652493");
  for (const auto& [units, passes] : {std::pair{2, true}, {16, false}}) {
    const CaseTensors tensors = solved(c);
    const Expectation expected = expect_backward(backward_problem(c), tensors.backward(), 1);
    for (std::int64_t batch = 0; batch < c.problem.batch; ++batch) {
      for (std::int64_t key = 0; key < c.problem.len_k; ++key)
        scale_row(tensors.dv.view(), batch, 0, key, 1 - units * 0x1p-24);
    }
    EXPECT_FALSE(compare(without_more(expected), tensors.backward()).ok);
    const Verdict verdict = compare(expected, tensors.backward());
    EXPECT_EQ(verdict.ok, passes) << verdict.reason();
  }
}

// Of a sample, backward is expected from the call's own out; of a whole problem, from the inputs.
TEST(Check, GradientsOfASampleAreExpectedOfOneCallOnly) {
  for (const auto& [line, sampled] :
       {std::pair{"pass=e2e lq=140000 lk=1 d=64", true}, {"pass=e2e lq=140 lk=1 d=64", false}}) {
    const verification::AttentionCase c = verification::attention_case(line);
    const CaseTensors tensors = solved(c);
    const Expectation expected = expect_backward(backward_problem(c), tensors.backward(), 1);
    EXPECT_EQ(expected.sampled, sampled);
    EXPECT_EQ(expected.of_outputs, sampled);
    EXPECT_TRUE(compare(expected, tensors.backward()).ok);
  }
}

TEST(Check, FailsAMissingGradientThatWasAskedFor) {
  const verification::AttentionCase c = verification::attention_case("pass=e2e lq=8 d=8");
  const CaseTensors tensors = solved(c);
  const Expectation expected = expect_backward(backward_problem(c), tensors.backward(), 1);
  BackwardTensors answer = tensors.backward();
  EXPECT_TRUE(compare(expected, answer).ok);
  answer.dk = {};
  EXPECT_FALSE(compare(expected, answer).ok);
}

TEST(Check, AGradientWithoutElementsNeedsNoMemory) {
  const verification::AttentionCase c = verification::attention_case("pass=e2e lq=0 lk=8 d=8");
  const CaseTensors tensors = solved(c);
  BackwardTensors answer = tensors.backward();
  const Expectation expected = expect_backward(backward_problem(c), answer, 1);
  answer.dq = {};
  EXPECT_TRUE(compare(expected, answer).ok);
  answer.dk = {};
  EXPECT_FALSE(compare(expected, answer).ok);
}

TEST(Check, LargeProblemsAreSampledAtTileEdgesAndAtRandom) {
  const verification::AttentionCase c = verification::attention_case("pass=bwd b=2 hq=16 hkv=4 lq=4k d=64 mask=causal");
  const Sample sample = sample_of(c.problem, 7);
  EXPECT_FALSE(sample.complete);
  EXPECT_GE(sample.queries.size(), 256u);
  EXPECT_LE(sample.queries.size(), 400u);
  EXPECT_GE(sample.keys.size(), 64u);
  for (const std::int64_t edge : {0, 63, 64, 127, 128, 4095}) {
    EXPECT_TRUE(std::find(sample.queries.begin(), sample.queries.end(), RowIndex{0, sample.queries[0].head, edge}) !=
                sample.queries.end());
  }
  EXPECT_EQ(sample.keys.back(), (RowIndex{1, 3, 4095}));
  const Sample again = sample_of(c.problem, 7), other = sample_of(c.problem, 8);
  EXPECT_EQ(sample.queries, again.queries);
  EXPECT_NE(sample.queries, other.queries);
}

}  // namespace
}  // namespace fovea::verification
