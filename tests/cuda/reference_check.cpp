// The double-precision kernels against the CPU's reference, on every mask, type, layout and gap in backward's inputs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "cuda/reference/chosen_rows.h"
#include "on_device.h"
#include "verification/attention/case_tensors.h"
#include "verification/attention/evaluation.h"

namespace fovea::cuda {
namespace {

using verification::RowIndex;
using verification::RowValues;

// Both sum in double precision, in another order: far below any tolerance that is judged with these values. Inputs are
// of order 1, and so are the terms of a sum that cancels: dq and dk of a row with a single visible key are 0.
constexpr double kAgreement = 1e-11;

bool agree(const char* tensor, const std::vector<double>& got, const RowValues& wanted,
           const verification::AttentionCase& c) {
  double largest = 0, worst = 0;
  bool same = got.size() == wanted.values.size();
  for (std::size_t n = 0; same && n < got.size(); ++n) {
    const double x = got[n], y = wanted.values[n];
    if (!std::isfinite(y)) {
      same = std::isnan(y) ? std::isnan(x) : x == y;
      continue;
    }
    largest = std::max(largest, std::abs(y));
    worst = std::isnan(x) ? HUGE_VAL : std::max(worst, std::abs(x - y));
  }
  if (same && worst <= kAgreement * std::max(largest, 1.0)) return true;
  std::printf("REFERENCE %s differs by %g of %g: %s\n", tensor, worst, largest, verification::line_of(c).c_str());
  return false;
}

std::vector<reference::Row> rows_of(const std::vector<RowIndex>& indices) {
  std::vector<reference::Row> rows;
  for (const auto& [batch, head, index] : indices) rows.push_back({batch, head, index});
  return rows;
}

bool same_forward(const verification::AttentionCase& c, const ForwardTensors& tensors,
                  const verification::Sample& sample) {
  const auto got = reference::forward_rows(c.problem, tensors, rows_of(sample.queries));
  const auto wanted = verification::evaluate_reference(c.problem, tensors, sample);
  const bool out = agree("out", got.out, wanted.out, c), lse = agree("lse", got.lse, wanted.lse, c);
  return out && lse;
}

bool same_backward(const verification::AttentionCase& c, const BackwardTensors& tensors,
                   const verification::Sample& sample) {
  const auto got = reference::backward_rows(c.problem, tensors, rows_of(sample.queries), rows_of(sample.keys));
  const auto wanted = verification::evaluate_reference(c.problem, tensors, sample);
  const bool dq = agree("dq", got.dq, wanted.dq, c), dk = agree("dk", got.dk, wanted.dk, c);
  return agree("dv", got.dv, wanted.dv, c) && dq && dk;
}

// Every third row and every second key, so that they are chosen and not counted through.
verification::Sample some_of(const AttentionProblem& p) {
  verification::Sample all = verification::sample_of(p, 1), some;
  for (std::size_t n = 0; n < all.queries.size(); n += 3) some.queries.push_back(all.queries[n]);
  for (std::size_t n = 1; n < all.keys.size(); n += 2) some.keys.push_back(all.keys[n]);
  return some;
}

}  // namespace

int check_reference() {
  int passed = 0, failed = 0;
  const char* const sweeps[] = {
      "pass=bwd b=2 hq=6 hkv=2 lq=37 lk=53 d=24 dv=40 dtype=fp32,bf16,fp16 mask=none,causal_top_left,"
      "causal_bottom_right place=contiguous,strided layout=bhld,blhd",
      "pass=bwd b=1 hq=4 hkv=2 lq=37 lk=53 d=24 dtype=fp32,bf16 mask=window_top_left,window_bottom_right left=0,7 "
      "right=0,unlimited",
      "pass=bwd b=1 hq=2 hkv=1 lq=300 lk=300 d=256 dtype=bf16 mask=causal",
      "pass=bwd b=2 hq=2 hkv=2 lq=70 lk=9 d=16 dtype=fp32 mask=causal_bottom_right place=broadcast",
      "pass=bwd b=1 hq=2 hkv=2 lq=40 lk=40 d=8 dtype=fp32 mask=causal data=nonfinite"};
  for (const char* sweep : sweeps) {
    for (const verification::AttentionCase& c : verification::attention_sweep(sweep)) {
      const verification::CaseTensors tensors = verification::make_tensors(c);
      attention_forward(tensors.forward(),
                        {.mask = c.problem.mask, .scale = c.problem.scale, .implementation = "reference"});
      AttentionProblem problem = c.problem;
      problem.pass = Pass::backward;
      const verification::Sample sample = some_of(problem);
      bool same = same_forward(c, tensors.forward(), sample);
      BackwardTensors given = tensors.backward();
      same = same_backward(c, given, sample) && same;
      given.out = {};  // the reference computes delta
      same = same_backward(c, given, sample) && same;
      given.lse = {};  // and lse
      same = same_backward(c, given, sample) && same;
      ++(same ? passed : failed);
    }
  }
  std::printf("reference: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
