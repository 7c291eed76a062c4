// The seam between scaling and the maximum, filled in: kernels with a softcap against plain loops, in float and in
// double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/implementation.h"
#include "cpu/backward.h"
#include "cpu/forward.h"
#include "softcap_kernels.h"
#include "verification/attention/case.h"
#include "verification/attention/case_tensors.h"

namespace fovea::cpu {
namespace {

constexpr std::int64_t kDim = 8, kKeys = 150, kGroup = 2;  // keys of two blocks

template <class Real>
struct Answer {
  explicit Answer(std::int64_t queries) : out(static_cast<std::size_t>(kGroup * queries * kDim)), dq(out) {}
  std::vector<Real> out, dq;
  std::vector<Real> dk = std::vector<Real>(kKeys * kDim), dv = dk;
};

template <class Real>
Real dot(const float* a, const float* b) {
  Real sum = 0;
  for (int c = 0; c < kDim; ++c) sum += Real{a[c]} * Real{b[c]};
  return sum;
}

// The rows of (head, query): probabilities p of the visible keys and the derivative of the stage at each.
template <class Real>
struct Row {
  std::vector<Real> p, slope;

  Row(const AttentionProblem& problem, const float* q, const float* k, std::int64_t i) : p(kKeys), slope(kKeys) {
    const KeyWindow window = key_window(problem);
    Real largest = -INFINITY, sum = 0;
    for (std::int64_t j = 0; j < kKeys; ++j) {
      const Real t = std::tanh(static_cast<Real>(problem.scale) * dot<Real>(q, k + j * kDim) / Real{kCap});
      p[j] = j < i + window.end ? kCap * t + (i == kMovedQuery && j == kMovedKey ? kMoved : 0) : -INFINITY;
      slope[j] = 1 - t * t;
      largest = std::max(largest, p[j]);
    }
    for (Real& x : p) sum += x = std::exp(x - largest);
    for (Real& x : p) x /= sum;
  }
};

template <class Real>
Answer<Real> softcap_attention(const AttentionProblem& problem, const verification::CaseTensors& t) {
  const auto data = [](const verification::HostTensor& x) { return static_cast<const float*>(x.view().data); };
  const float *k = data(t.k), *v = data(t.v);
  Answer<Real> a(problem.len_q);
  for (std::int64_t r = 0; r < kGroup * problem.len_q; ++r) {
    const float *q = data(t.q) + r * kDim, *dout = data(t.dout) + r * kDim;
    const Row<Real> row(problem, q, k, r % problem.len_q);
    Real delta = 0;
    for (std::int64_t j = 0; j < kKeys; ++j) {
      delta += row.p[j] * dot<Real>(dout, v + j * kDim);
      for (int c = 0; c < kDim; ++c) a.out[r * kDim + c] += row.p[j] * v[j * kDim + c];
    }
    for (std::int64_t j = 0; j < kKeys; ++j) {
      const Real ds =
          static_cast<Real>(problem.scale) * row.p[j] * row.slope[j] * (dot<Real>(dout, v + j * kDim) - delta);
      for (int c = 0; c < kDim; ++c) {
        a.dq[r * kDim + c] += ds * k[j * kDim + c];
        a.dk[j * kDim + c] += ds * q[c];
        a.dv[j * kDim + c] += row.p[j] * dout[c];
      }
    }
  }
  return a;
}

// The error is at most `times` the plain evaluation's, plus half an ulp at the root mean square.
void expect_close(const verification::HostTensor& got, const std::vector<float>& plain,
                  const std::vector<double>& exact, double times, const char* name) {
  const auto* values = static_cast<const float*>(got.view().data);
  double error = 0, plain_error = 0, norm = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(values[i] - exact[i], 2);
    plain_error += std::pow(plain[i] - exact[i], 2);
    norm += std::pow(exact[i], 2);
  }
  EXPECT_GT(norm, 0) << name;
  EXPECT_TRUE(std::sqrt(error) <= times * std::sqrt(plain_error) + 0x1p-24 * std::sqrt(norm))
      << name << ": " << std::sqrt(error / norm) << ", plain " << std::sqrt(plain_error / norm);
}

void expect_softcap(const verification::AttentionCase& c) {
  const verification::CaseTensors tensors = verification::make_tensors(c);
  const auto run = [&](const core::Plan& plan, auto call, const auto& t) {
    std::vector<char> memory(static_cast<std::size_t>(plan.workspace_bytes) + 64);
    void* workspace = memory.data();
    std::size_t space = memory.size();
    std::align(64, static_cast<std::size_t>(plan.workspace_bytes), workspace, space);
    call(plan, t, core::RunContext{.workspace = workspace, .threads = 1});
  };
  AttentionProblem problem = c.problem;
  run(*plan_forward(kSoftcapKernels, problem), run_forward, tensors.forward());
  problem.pass = Pass::backward;
  run(BackwardPlan(kSoftcapKernels, problem), run_backward, tensors.backward());
  const Answer<float> plain = softcap_attention<float>(problem, tensors);
  const Answer<double> exact = softcap_attention<double>(problem, tensors);
  expect_close(tensors.out, plain.out, exact.out, 2, "out");
  expect_close(tensors.dq, plain.dq, exact.dq, 3, "dq");
  expect_close(tensors.dk, plain.dk, exact.dk, 3, "dk");
  expect_close(tensors.dv, plain.dv, exact.dv, 3, "dv");
}

// Query tiles; few queries with keys in the lanes (12 rows) and with queries in the lanes (16).
TEST(Score, ASoftcapStageIsRightInForwardAndBackward) {
  for (const verification::AttentionCase& c : verification::attention_sweep(
           "pass=e2e hq=2 hkv=1 lq=6,8,37 lk=150 d=8 mask=causal_bottom_right scale=0.7,-0.7"))
    expect_softcap(c);
}

}  // namespace
}  // namespace fovea::cpu
