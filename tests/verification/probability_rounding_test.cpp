// Rows of few keys: P rounded once is right however the roundings fall; P rounded badly, or a key less, is not.
#include "verification/attention/probability_rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "attention/reference/head.h"
#include "core/float16.h"
#include "verification/attention/case_tensors.h"
#include "verification/attention/check.h"
#include "verification/attention/evaluation.h"

namespace fovea::verification {
namespace {

double bf16(double value) {
  std::uint16_t bits = 0;
  core::store_from_float(&bits, DType::bf16, 0, static_cast<float>(value));
  return core::load_as_float(&bits, DType::bf16, 0);
}

// Towards 0, where bf16() goes to the nearest.
double truncated(double value) {
  const double rounded = bf16(value);
  return rounded > value ? rounded - 2 * half_ulp(DType::bf16, rounded * (1 - 0x1p-10)) : rounded;
}

enum class How {
  once,       // exp(s - max) rounded before the division by the sum of what was rounded
  truncated,  // towards 0, before the division by the sum of what was not truncated
  coarse,     // rounded to seven digits instead of eight
  key_less,   // the last visible key left out
};

double rounded(double weight, How how) {
  switch (how) {
    case How::truncated:
      return truncated(weight);
    case How::coarse: {
      const double step = 4 * half_ulp(DType::bf16, weight);
      return std::round(weight / step) * step;
    }
    default:
      return bf16(weight);
  }
}

// Forward in double but for P, whose rounding is the only error.
CaseTensors answered(const AttentionCase& c, How how) {
  CaseTensors tensors = make_tensors(c, DType::fp32);
  const AttentionProblem& p = c.problem;
  for (const RowIndex& row : every_query(p)) {
    const std::int64_t key_head = row.head / (p.heads_q / p.heads_kv);
    std::vector<double> scores;
    std::vector<std::vector<double>> values;
    for (std::int64_t j = 0; j < p.len_k; ++j) {
      if (!reference::visible(p, row.index, j)) continue;
      const RowValues k = read_rows(tensors.k.view(), {{row.batch, key_head, j}});
      const RowValues q = read_rows(tensors.q.view(), {row});
      double score = 0;
      for (std::size_t at = 0; at < q.values.size(); ++at) score += q.values[at] * k.values[at];
      scores.push_back(score * p.scale);
      values.push_back(read_rows(tensors.v.view(), {{row.batch, key_head, j}}).values);
    }
    if (how == How::key_less && scores.size() > 1) scores.pop_back();
    const double largest = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
    double sum = 0, rounded_sum = 0;
    std::vector<double> out(static_cast<std::size_t>(p.dim_v), 0.0);
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const double weight = std::exp(scores[j] - largest), used = rounded(weight, how);
      sum += weight;
      rounded_sum += used;
      for (std::size_t n = 0; n < out.size(); ++n) out[n] += used * values[j][n];
    }
    const MutableTensorView view = tensors.out.view(), lse = tensors.lse.view();
    for (std::size_t n = 0; n < out.size(); ++n) {
      const double divisor = how == How::truncated ? sum : rounded_sum;
      core::store_from_float(view.data, view.dtype,
                             row.batch * view.strides[0] + row.head * view.strides[1] + row.index * view.strides[2] +
                                 static_cast<std::int64_t>(n),
                             static_cast<float>(scores.empty() ? 0 : out[n] / divisor));
    }
    core::store_from_float(lse.data, lse.dtype,
                           row.batch * lse.strides[0] + row.head * lse.strides[1] + row.index * lse.strides[2],
                           static_cast<float>(scores.empty() ? -HUGE_VAL : largest + std::log(sum)));
  }
  return tensors;
}

Verdict verdict_on(const std::string& line, How how) {
  AttentionCase c = attention_case(line);
  const CaseTensors tensors = answered(c, how);
  c.problem.result_dtype = DType::fp32;
  return check_forward(c.problem, tensors.forward(), 1);
}

// How many of `seeds` problems of few keys fail.
int failures(How how, int seeds) {
  int failed = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const std::string line = "dtype=bf16 d=2 dv=1 lq=" + std::to_string(1 + seed % 3) +
                             " lk=" + std::to_string(2 + seed % 4) + " seed=" + std::to_string(seed);
    failed += verdict_on(line, how).ok ? 0 : 1;
  }
  return failed;
}

// Found by `fovea verify --cases 20000 --seed 2027`: two of three probabilities lie near half a unit in the last place,
// with one sign. The plain evaluation divides before it rounds, and its errors are less than half as large.
TEST(ProbabilityRounding, UnluckyRoundingsOfThreeKeysAreRight) {
  const Verdict verdict =
      verdict_on("hq=2 lq=2 lk=3 d=2 dv=1 dtype=bf16 mask=causal_bottom_right scale=0.7071067811865475 seed=3381557479",
                 How::once);
  EXPECT_TRUE(verdict.ok) << verdict.reason();
}

TEST(ProbabilityRounding, PRoundedOnceIsRightForEverySeed) { EXPECT_EQ(failures(How::once, 4000), 0); }

TEST(ProbabilityRounding, FaultsOfFewKeysAreFound) {
  constexpr int kSeeds = 400;
  EXPECT_GT(failures(How::truncated, kSeeds), 0);
  EXPECT_GT(failures(How::coarse, kSeeds), 0);
  EXPECT_GT(failures(How::key_less, kSeeds), kSeeds * 9 / 10);
}

// The derived error concerns few keys only: with more, worse roundings fail as ever.
TEST(ProbabilityRounding, FaultsOfManyKeysAreFound) {
  const char* const sink = "lq=4 lk=256 d=8 dtype=bf16 data=sink seed=3";
  EXPECT_TRUE(verdict_on(sink, How::once).ok) << verdict_on(sink, How::once).reason();
  EXPECT_FALSE(verdict_on(sink, How::truncated).ok);
  EXPECT_FALSE(verdict_on(sink, How::key_less).ok);
  EXPECT_FALSE(verdict_on("lq=32 lk=64 d=16 dtype=bf16 seed=4", How::key_less).ok);
}

TEST(ProbabilityRounding, ErrorsAreDerivedForTwoToFiveKeys) {
  for (const char* dtype : {"fp32", "bf16"}) {
    AttentionCase c = attention_case("lq=8 d=4 mask=causal_top_left seed=1 dtype=" + std::string(dtype));
    const CaseTensors tensors = make_tensors(c);
    const ForwardValues values = evaluate_reference(c.problem, tensors.forward(), sample_of(c.problem, 0));
    const std::vector<double> errors = errors_of_one_rounding(c.problem, tensors.forward(), values.out);
    for (std::size_t keys = 1; keys <= 8; ++keys)
      EXPECT_EQ(errors[keys - 1] > 0, c.problem.dtype == DType::bf16 && keys >= 2 && keys <= 5) << keys;
  }
}

// An lse of one key is its score, and four keys average the errors of four. Found as above: 2.3 times the largest error
// that companions of four keys showed.
TEST(ProbabilityRounding, AnLseOfOneKeyIsComparedWithLsesOfOneKey) {
  const AttentionCase c = attention_case("lq=1 lk=1 d=257 dv=1 dtype=bf16 scale=0.06237828615518053 seed=1394123565");
  const CaseTensors tensors = make_tensors(c);
  AttentionOptions options = options_of(c);
  options.implementation = "reference";
  attention_forward(tensors.forward(), options);
  const MutableTensorView lse = tensors.lse.view();
  const float exact = core::load_as_float(lse.data, lse.dtype, 0);
  core::store_from_float(lse.data, lse.dtype, 0, exact + 6.7e-7f);  // cpu.avx512_bf16's error
  EXPECT_TRUE(check_forward(c.problem, tensors.forward(), 1).ok);
  core::store_from_float(lse.data, lse.dtype, 0, exact + 4e-6f);
  EXPECT_FALSE(check_forward(c.problem, tensors.forward(), 1).ok);
}

}  // namespace
}  // namespace fovea::verification
