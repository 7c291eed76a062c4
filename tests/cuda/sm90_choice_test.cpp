// Predicted times on Hopper, and the choice by them, on any machine. Backward: against the times of
// results/h200/hopper_sweep.csv.xz.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/attention/any/plan.h"
#include "cuda/attention/sm90/plan.h"
#include "described_device.h"

namespace fovea::cuda {
namespace {

// A line of the sweep: pass;b;hq;hkv;lq;lk;d;dv;dtype;mask;us_sm90;us_any. Masks: none, causal at the bottom right, or
// wN, a window of N keys to the left.
struct Timed {
  AttentionProblem problem;
  double sm90 = 0, any = 0;  // seconds; 0: refused then
};

Mask mask_of(const std::string& word) {
  if (word == "none") return Mask::none;
  return word == "causal" ? Mask::causal_bottom_right : Mask::window_bottom_right(std::stoll(word.substr(1)), 0);
}

Timed parse(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; std::getline(stream, word, ';');) words.push_back(word);
  Timed one;
  AttentionProblem& p = one.problem;
  p.pass = words.at(0) == "fwd" ? Pass::forward : Pass::backward;
  std::int64_t* const sizes[] = {&p.batch, &p.heads_q, &p.heads_kv, &p.len_q, &p.len_k, &p.dim_qk, &p.dim_v};
  for (std::size_t i = 0; i < std::size(sizes); ++i) *sizes[i] = std::stoll(words.at(i + 1));
  p.dtype = p.result_dtype = words.at(8) == "fp16" ? DType::fp16 : DType::bf16;
  p.mask = mask_of(words.at(9));
  p.scale = 0.1;
  p.device = {DeviceKind::cuda, 0};
  one.sm90 = std::stod(words.at(10)) * 1e-6, one.any = std::stod(words.at(11)) * 1e-6;
  return one;
}

// Backward calls that both implementations ran: of up to 128 columns, or of more.
std::vector<Timed> backward_calls(bool wide) {
  std::vector<Timed> all;
  std::ifstream file(FOVEA_HOPPER_SWEEP);
  std::string line;
  for (std::getline(file, line); std::getline(file, line);) {
    const Timed one = parse(line);
    const AttentionProblem& p = one.problem;
    if (p.pass != Pass::backward || one.sm90 <= 0 || one.any <= 0) continue;
    if ((std::max(p.dim_qk, p.dim_v) > 128) == wide) all.push_back(one);
  }
  return all;
}

// Regret: the chosen implementation's time relative to the faster one's.
struct Choice {
  double regret = 0, worst = 1;  // geometric mean, largest
  double above = 0;              // share of calls with a regret above 1.15
  double error = 0;              // mean |log(predicted / measured)| of cuda.sm90
};

Choice choice_of(const std::vector<Timed>& calls) {
  Choice all;
  for (const Timed& one : calls) {
    const double sm90 = sm90::prepare(one.problem, 0).plan->seconds, any = any::prepare(one.problem, 0).plan->seconds;
    const double regret = (sm90 < any ? one.sm90 : one.any) / std::min(one.sm90, one.any);
    all.regret += std::log(regret);
    all.error += std::abs(std::log(sm90 / one.sm90));
    all.worst = std::max(all.worst, regret);
    all.above += regret > 1.15;
  }
  const auto count = static_cast<double>(calls.size());
  all.regret = std::exp(all.regret / count), all.error /= count, all.above /= count;
  return all;
}

// On this grid cuda.sm90 was the faster one in every problem that both were timed for.
TEST(Sm90ForwardChoice, TakesTheGridOfH200Dense) {
  describe_device(9, 132, kH200Shared, 3);
  for (const std::int64_t dim : {64, 128, 256}) {
    for (std::int64_t len = 512; len <= 16384; len *= 2) {
      for (const Mask mask : {Mask::none, Mask::causal}) {
        AttentionProblem p;
        p.batch = 16384 / len, p.heads_q = p.heads_kv = 2048 / dim;
        p.len_q = p.len_k = len, p.dim_qk = p.dim_v = dim;
        p.dtype = p.result_dtype = DType::bf16;
        p.mask = mask;
        p.scale = 0.1;
        p.device = {DeviceKind::cuda, 0};
        EXPECT_LT(sm90::prepare(p, 0).plan->seconds, any::prepare(p, 0).plan->seconds) << len << " x " << dim;
      }
    }
  }
}

// cuda.sm90 took 20.8 us, cuda.any 16.2: cold calls on an H200. Hot, the first is predicted to take 15.6.
TEST(Sm90ForwardChoice, CountsColdCalls) {
  describe_device(9, 132, kH200Shared, 3);
  AttentionProblem p;
  p.len_q = p.len_k = 4096, p.dim_qk = p.dim_v = 64;
  p.dtype = p.result_dtype = DType::bf16;
  p.mask = Mask::causal;
  p.scale = 0.1;
  p.device = {DeviceKind::cuda, 0};
  EXPECT_GT(sm90::prepare(p, 0).plan->seconds, any::prepare(p, 0).plan->seconds);
}

// All but the last 19 of these calls ran with a slower preprocess than the predicted one.
TEST(Sm90BackwardChoice, LosesLittleTime) {
  describe_device(9, 132, kH200Shared, 3);
  const std::vector<Timed> calls = backward_calls(false);
  ASSERT_EQ(calls.size(), 2327);
  const Choice choice = choice_of(calls);
  EXPECT_LT(choice.regret, 1.0125);
  EXPECT_LT(choice.worst, 1.4);
  EXPECT_LT(choice.above, 0.03);
  EXPECT_LT(choice.error, 0.075);
}

TEST(Sm90BackwardChoice, LosesLittleTimeWithWideHeads) {
  describe_device(9, 132, kH200Shared, 3);
  const std::vector<Timed> calls = backward_calls(true);
  ASSERT_EQ(calls.size(), 964);
  const Choice choice = choice_of(calls);
  EXPECT_LT(choice.regret, 1.01);
  EXPECT_LT(choice.worst, 1.5);
  EXPECT_LT(choice.above, 0.03);
  EXPECT_LT(choice.error, 0.06);
}

}  // namespace
}  // namespace fovea::cuda
