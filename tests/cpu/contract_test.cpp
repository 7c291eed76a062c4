// Properties of the contract that hold to the bit, on every instruction set: what a query's result depends on, optional
// tensors, accumulation, wide results.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/float16.h"
#include "engine.h"

namespace fovea::cpu {
namespace {

using verification::AttentionCase;
using verification::CaseTensors;
using verification::HostTensor;

std::int64_t elements(const HostTensor& t) { return t.view().buffer_bytes / size_of(t.view().dtype); }
float value(const HostTensor& t, std::int64_t i) { return core::load_as_float(t.view().data, t.view().dtype, i); }
bool same(const HostTensor& a, const HostTensor& b) {
  return std::memcmp(a.view().data, b.view().data, static_cast<std::size_t>(a.view().buffer_bytes)) == 0;
}

CaseTensors solve(const AttentionCase& c, std::string_view name, int threads = 1) {
  CaseTensors tensors = verification::make_tensors(c);
  attention_forward(tensors.forward(), forced(c, name, threads));
  attention_backward(tensors.backward(), forced(c, name, threads));
  return tensors;
}

TEST(Contract, ValuesOfOneGiveOne) {
  for (const AttentionCase& c :
       verification::attention_sweep("pass=e2e data=ones lq=3,16,70 lk=1,95,300,1300 d=16 dtype=fp32,bf16 "
                                     "mask=none,causal_top_left seed=1,2")) {
    for (const std::string& name : available(c.problem)) {
      const CaseTensors t = solve(c, name);
      for (std::int64_t i = 0; i < elements(t.out); ++i)
        ASSERT_EQ(value(t.out, i), 1.0f) << name << verification::line_of(c);
    }
  }
}

void set(const HostTensor& t, std::int64_t i, float x) { core::store_from_float(t.view().data, t.view().dtype, i, x); }
void fill(const HostTensor& t, float x) {
  for (std::int64_t i = 0; i < elements(t); ++i) set(t, i, x);
}

// Also where the product of score and scale is rounded before the exponential.
TEST(Contract, LseOfOneKeyIsItsScaledScore) {
  constexpr std::int64_t kRows = 64, kDim = 8;
  for (const AttentionCase& c : verification::attention_sweep("lq=64 lk=1 d=8 scale=0.3 dtype=fp32,bf16")) {
    for (const std::string& name : available(c.problem)) {
      const CaseTensors t = verification::make_tensors(c);
      fill(t.q, 0), fill(t.k, 0);
      set(t.k, 0, 1.25f);
      for (std::int64_t r = 0; r < kRows; ++r) set(t.q, r * kDim, static_cast<float>(512 + 4 * r));
      attention_forward(t.forward(), forced(c, name));
      for (std::int64_t r = 0; r < kRows; ++r) {
        const double exact = 1.25 * static_cast<double>(512 + 4 * r) * c.problem.scale;
        const double ulp = std::nextafter(static_cast<float>(exact), 1e9f) - static_cast<float>(exact);
        EXPECT_NEAR(value(t.lse, r), exact, 0.55 * ulp) << name << verification::line_of(c) << ", row " << r;
      }
    }
  }
}

TEST(Contract, ScoresWhoseScaledSizeExceedsFp32GiveTheLargest) {
  constexpr std::int64_t kDim = 8;
  for (const AttentionCase& c : verification::attention_sweep("lq=64 lk=2 d=8 scale=1e30 dtype=fp32,bf16")) {
    for (const std::string& name : available(c.problem)) {
      const CaseTensors t = verification::make_tensors(c);
      fill(t.q, 65536), fill(t.k, 8192), fill(t.v, 1);
      for (std::int64_t d = 0; d < kDim; ++d) set(t.k, kDim + d, 16384), set(t.v, kDim + d, 2);
      attention_forward(t.forward(), forced(c, name));
      for (std::int64_t i = 0; i < elements(t.out); ++i)
        ASSERT_EQ(value(t.out, i), 2) << name << verification::line_of(c);
    }
  }
}

TEST(Contract, AnyNumberOfThreadsGivesTheSameBits) {
  for (const AttentionCase& c : verification::attention_sweep(
           "pass=e2e b=1 hq=4 hkv=2 lq=3,8,130 lk=1100,3000 d=24 dtype=bf16 mask=causal_bottom_right seed=2")) {
    for (const std::string& name : available(c.problem)) {
      const CaseTensors one = solve(c, name), three = solve(c, name, 3);
      for (const auto tensor :
           {&CaseTensors::out, &CaseTensors::lse, &CaseTensors::dq, &CaseTensors::dk, &CaseTensors::dv})
        EXPECT_TRUE(same(one.*tensor, three.*tensor)) << name;
    }
  }
}

// Four rows that share a key head are one bundle on every instruction set: neither their places nor the other rows
// change a row's bits.
TEST(Contract, PlacesOfFewQueriesInAGroupDoNotChangeTheirBits) {
  constexpr std::int64_t kHeads = 4, kBytes = 160;
  const AttentionCase grouped = verification::attention_case("b=1 hq=4 hkv=1 lq=1 lk=1300 d=40 data=peaked seed=12");
  for (const std::string& name : available(grouped.problem)) {
    const CaseTensors all = verification::make_tensors(grouped), rotated = verification::make_tensors(grouped);
    const auto row = [](const CaseTensors& t, auto tensor, std::int64_t head) {
      return static_cast<char*>((t.*tensor).view().data) + head * kBytes;
    };
    for (std::int64_t head = 0; head < kHeads; ++head)
      std::memcpy(row(rotated, &CaseTensors::q, (head + 1) % kHeads), row(all, &CaseTensors::q, head), kBytes);
    attention_forward(all.forward(), forced(grouped, name));
    attention_forward(rotated.forward(), forced(grouped, name));
    for (std::int64_t head = 0; head < kHeads; ++head) {
      EXPECT_EQ(
          std::memcmp(row(rotated, &CaseTensors::out, (head + 1) % kHeads), row(all, &CaseTensors::out, head), kBytes),
          0)
          << name << head;
    }
  }
}

TEST(Contract, GroupedHeadsEqualExpandedHeads) {
  const AttentionCase grouped =
      verification::attention_case("b=2 hq=6 hkv=2 lq=50 lk=120 d=16 mask=causal_bottom_right seed=3");
  const AttentionCase expanded =
      verification::attention_case("b=2 hq=6 hkv=6 lq=50 lk=120 d=16 mask=causal_bottom_right seed=3");
  for (const std::string& name : available(grouped.problem)) {
    const CaseTensors a = verification::make_tensors(grouped), b = verification::make_tensors(expanded);
    for (const auto& [from, to] : {std::pair{&a.k, &b.k}, {&a.v, &b.v}}) {
      const auto& x = from->view();
      const auto& y = to->view();
      const std::int64_t head = x.strides[1];
      for (std::int64_t h = 0; h < 12; ++h)
        std::memcpy(static_cast<float*>(y.data) + h * head, static_cast<const float*>(x.data) + h / 3 * head,
                    static_cast<std::size_t>(head) * 4);
    }
    attention_forward(a.forward(), forced(grouped, name));
    attention_forward(b.forward(), forced(expanded, name));
    EXPECT_TRUE(same(a.out, b.out) && same(a.lse, b.lse)) << name;
  }
}

TEST(Contract, LaterKeysDoNotReachEarlierQueries) {
  const AttentionCase c = verification::attention_case("pass=e2e lq=200 lk=200 d=16 mask=causal data=peaked seed=4");
  for (const std::string& name : available(c.problem)) {
    const CaseTensors a = solve(c, name), b = verification::make_tensors(c);
    constexpr std::int64_t kFirst = 101;  // of the keys that change, in the middle of a tile
    for (const HostTensor* t : {&b.k, &b.v}) {
      for (std::int64_t i = kFirst * 16; i < elements(*t); ++i) static_cast<float*>(t->view().data)[i] *= 1e4f;
    }
    attention_forward(b.forward(), forced(c, name));
    EXPECT_EQ(std::memcmp(a.out.view().data, b.out.view().data, kFirst * 16 * 4), 0) << name;
    EXPECT_EQ(std::memcmp(a.lse.view().data, b.lse.view().data, kFirst * 4), 0) << name;
  }
}

TEST(Contract, EachGradientAloneHasTheSameBits) {
  const AttentionCase c =
      verification::attention_case("pass=e2e b=1 hq=4 hkv=2 lq=60 lk=1100 d=16 dv=24 mask=causal_bottom_right seed=5");
  for (const std::string& name : available(c.problem)) {
    const CaseTensors all = solve(c, name);
    for (int subset = 1; subset < 7; ++subset) {
      const CaseTensors some = solve(c, name);
      for (const HostTensor* t : {&some.dq, &some.dk, &some.dv}) const_cast<HostTensor*>(t)->poison();
      BackwardTensors tensors = some.backward();
      if ((subset & 1) == 0) tensors.dq = {};
      if ((subset & 2) == 0) tensors.dk = {};
      if ((subset & 4) == 0) tensors.dv = {};
      attention_backward(tensors, forced(c, name));
      EXPECT_EQ(same(some.dq, all.dq), (subset & 1) != 0) << name << subset;
      EXPECT_EQ(same(some.dk, all.dk), (subset & 2) != 0) << name << subset;
      EXPECT_EQ(same(some.dv, all.dv), (subset & 4) != 0) << name << subset;
    }
  }
}

// Of every row: the sum of out times dout, in double precision.
std::vector<float> deltas(const CaseTensors& t) {
  const Sizes sizes = t.out.view().sizes;
  std::vector<float> all(static_cast<std::size_t>(elements(t.out) / sizes[3]));
  for (std::size_t row = 0; row < all.size(); ++row) {
    double sum = 0;
    for (std::int64_t d = 0; d < sizes[3]; ++d) {
      const auto i = static_cast<std::int64_t>(row) * sizes[3] + d;
      sum += static_cast<double>(value(t.out, i)) * static_cast<double>(value(t.dout, i));
    }
    all[row] = static_cast<float>(sum);
  }
  return all;
}

TEST(Contract, AGivenDeltaReplacesOut) {
  const AttentionCase c = verification::attention_case("pass=e2e b=1 hq=2 lq=60 lk=90 d=16 seed=6");
  for (const std::string& name : available(c.problem)) {
    const CaseTensors t = solve(c, name);
    std::vector<float> delta = deltas(t);
    BackwardTensors tensors = t.backward();
    tensors.out = {};
    tensors.delta = contiguous(delta.data(), {1, 2, 60, 1});
    attention_backward(tensors, forced(c, name));
    const auto verdict = verification::check_backward(describe(tensors, forced(c, name)), tensors, 1);
    EXPECT_TRUE(verdict.ok) << name << verdict.reason();
  }
}

// Backward sums delta from an out of fp32 as exactly as fp32 does, also where products take bf16.
TEST(Contract, AnOutOfFp32GivesTheGradientsOfItsDelta) {
  const AttentionCase c = verification::attention_case("pass=e2e b=1 hq=2 lq=60 lk=90 d=48 dtype=bf16 seed=13");
  for (const std::string& name : available(c.problem)) {
    const CaseTensors by_out = verification::make_tensors(c, DType::fp32),
                      by_delta = verification::make_tensors(c, DType::fp32);
    for (const CaseTensors* t : {&by_out, &by_delta}) attention_forward(t->forward(), forced(c, name));
    attention_backward(by_out.backward(), forced(c, name));
    std::vector<float> delta = deltas(by_delta);
    BackwardTensors tensors = by_delta.backward();
    tensors.out = {};
    tensors.delta = contiguous(delta.data(), {1, 2, 60, 1});
    attention_backward(tensors, forced(c, name));
    double difference = 0, all = 0;
    for (std::int64_t i = 0; i < elements(by_out.dq); ++i) {
      difference += std::abs(static_cast<double>(value(by_out.dq, i)) - static_cast<double>(value(by_delta.dq, i)));
      all += std::abs(static_cast<double>(value(by_delta.dq, i)));
    }
    EXPECT_LT(difference, 2e-4 * all) << name << ": an out rounded to bf16 changes four times as much";
  }
}

TEST(Contract, ARaisedFlagCancels) {
  const AttentionCase c = verification::attention_case("pass=e2e b=1 hq=1 lq=300 lk=300 d=16 dtype=bf16");
  const std::atomic<bool> raised{true};
  for (const std::string& name : available(c.problem)) {
    const CaseTensors tensors = solve(c, name);
    AttentionOptions options = forced(c, name);
    options.cancel = &raised;
    EXPECT_EQ(status_of([&] { attention_forward(tensors.forward(), options); }), Status::cancelled) << name;
    EXPECT_EQ(status_of([&] { attention_backward(tensors.backward(), options); }), Status::cancelled) << name;
  }
}

TEST(Contract, AccumulatingAddsToTheGradient) {
  for (const AttentionCase& c :
       verification::attention_sweep("pass=e2e b=2 hq=4 hkv=2 lq=60 lk=90,1100 d=17 dtype=fp32,bf16 seed=7")) {
    for (const std::string& name : available(c.problem)) {
      const CaseTensors once = verification::make_tensors(c, DType::fp32),
                        twice = verification::make_tensors(c, DType::fp32);
      for (const CaseTensors* t : {&once, &twice}) {
        attention_forward(t->forward(), forced(c, name));
        attention_backward(t->backward(), forced(c, name));
      }
      BackwardTensors tensors = twice.backward();
      tensors.accumulate = true;
      attention_backward(tensors, forced(c, name));
      for (const auto& [a, b] : {std::pair{&once.dq, &twice.dq}, {&once.dk, &twice.dk}, {&once.dv, &twice.dv}}) {
        for (std::int64_t i = 0; i < elements(*a); ++i) ASSERT_EQ(value(*a, i) + value(*a, i), value(*b, i)) << name;
      }
    }
  }
}

TEST(Contract, Fp32ResultsRoundToThe16BitOnes) {
  for (const AttentionCase& c : verification::attention_sweep("b=1 hq=2 lq=60 lk=90 d=20 dtype=bf16,fp16 seed=8")) {
    for (const std::string& name : available(c.problem)) {
      const CaseTensors narrow = verification::make_tensors(c), wide = verification::make_tensors(c, DType::fp32);
      attention_forward(narrow.forward(), forced(c, name));
      attention_forward(wide.forward(), forced(c, name));
      for (std::int64_t i = 0; i < elements(wide.out); ++i) {
        std::uint16_t bits[2] = {};
        core::store_from_float(bits, c.problem.dtype, 0, value(wide.out, i));
        ASSERT_EQ(core::load_as_float(bits, c.problem.dtype, 0), value(narrow.out, i)) << name;
      }
    }
  }
}

void expect_enough(const AttentionCase& c) {
  for (const std::string& name : available(c.problem)) {
    const CaseTensors expected = solve(c, name), t = verification::make_tensors(c);
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      AttentionProblem problem = c.problem;
      problem.pass = pass;
      const std::int64_t bytes = workspace_bytes(problem, name);
      constexpr unsigned char kGuard = 0xa5;
      std::vector<unsigned char> memory(static_cast<std::size_t>(bytes) + 128, kGuard);
      auto* const aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
      AttentionOptions options = forced(c, name, 8);
      options.workspace = {aligned, bytes};
      pass == Pass::forward ? attention_forward(t.forward(), options) : attention_backward(t.backward(), options);
      for (auto* p = aligned + bytes; p < memory.data() + memory.size(); ++p) ASSERT_EQ(*p, kGuard) << name;
      for (auto* p = memory.data(); p < aligned; ++p) ASSERT_EQ(*p, kGuard) << name;
    }
    EXPECT_TRUE(same(expected.out, t.out) && same(expected.dq, t.dq) && same(expected.dk, t.dk)) << name;
  }
}

TEST(Contract, TheCallersWorkspaceIsEnough) {
  for (const char* line :
       {"pass=e2e b=2 hq=4 hkv=2 lq=60 lk=1100 d=17 seed=9", "pass=e2e b=2 hq=4 hkv=2 lq=3 lk=1700 d=17 dv=40 seed=10",
        "pass=e2e b=1 hq=4 hkv=2 lq=8 lk=1700 d=17 dv=40 dtype=bf16 seed=11"})
    expect_enough(verification::attention_case(line));
}

}  // namespace
}  // namespace fovea::cpu
