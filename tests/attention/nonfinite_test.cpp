// NaN and infinity in visible places: they poison what docs/numerics.md says, and nothing else.
#include <cmath>
#include <limits>

#include "attention/engines.h"
#include "attention/reference/head.h"

namespace fovea {
namespace {

// The element that is struck, of the second batch element: query row 33 of head 2, or key 17 of key head 1, column 5.
constexpr std::int64_t kBatch = 1, kHead = 2, kKeyHead = 1, kQuery = 33, kKey = 17, kColumn = 5;

enum class Struck { q, k, v, dout };

struct Strike {
  Struck tensor;
  verification::AttentionCase c;
  const AttentionProblem& p() const { return c.problem; }
  bool of_keys() const { return tensor == Struck::k || tensor == Struck::v; }

  // Whether query row i takes part with the struck element in a visible pair.
  bool reaches(std::int64_t b, std::int64_t h, std::int64_t i) const {
    if (b != kBatch) return false;
    return of_keys() ? h / 2 == kKeyHead && reference::visible(p(), i, kKey) : h == kHead && i == kQuery;
  }
  // Whether a row that is reached sees key j of the struck key head.
  bool spreads_to(std::int64_t j) const {
    for (std::int64_t i = 0; i < p().len_q; ++i) {
      if (reaches(kBatch, kHead, i) && reference::visible(p(), i, j)) return true;
    }
    return false;
  }
  void set_to(const verification::CaseTensors& t, float value) const {
    const MutableTensorView views[] = {t.q.view(), t.k.view(), t.v.view(), t.dout.view()};
    set(views[static_cast<int>(tensor)], kBatch, of_keys() ? kKeyHead : kHead, of_keys() ? kKey : kQuery, kColumn,
        value);
  }
};

struct Solved {
  verification::CaseTensors tensors;
  bool forward_ok, backward_ok;
  std::string reason;
};

Solved run_with(const std::string& engine, const Strike& strike, float value) {
  Solved run{verification::make_tensors(strike.c), false, false, ""};
  if (value != 0) strike.set_to(run.tensors, value);
  attention_forward(run.tensors.forward(), options_on(engine, strike.c));
  attention_backward(run.tensors.backward(), options_on(engine, strike.c));
  const auto forward = verification::check_forward(strike.p(), run.tensors.forward(), 1);
  const auto backward = verification::check_backward(backward_of(strike.p()), run.tensors.backward(), 1);
  run.forward_ok = forward.ok;
  run.backward_ok = backward.ok;
  run.reason = forward.reason() + " " + backward.reason();
  return run;
}

// Forward after a NaN: rows that are reached are NaN, in the struck column only where it is a value's; rows that are
// not are what they were, unless a hidden value shares their tile.
void expect_forward(const Strike& strike, const Solved& clean, const Solved& run) {
  const bool of_value = strike.tensor == Struck::v;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t i = 0; i < strike.p().len_q; ++i) {
        const bool reached = strike.tensor != Struck::dout && strike.reaches(b, h, i);
        const float lse = at(run.tensors.lse.view(), b, h, i, 0);
        EXPECT_TRUE(reached && !of_value ? std::isnan(lse) : lse == at(clean.tensors.lse.view(), b, h, i, 0)) << i;
        for (std::int64_t n = 0; n < strike.p().dim_v; ++n) {
          const float out = at(run.tensors.out.view(), b, h, i, n), was = at(clean.tensors.out.view(), b, h, i, n);
          if (reached && (!of_value || n == kColumn)) {
            EXPECT_TRUE(std::isnan(out)) << i << " " << n;
          } else if (!of_value || b != kBatch || h / 2 != kKeyHead) {
            EXPECT_EQ(out, was) << b << " " << h << " " << i << " " << n;
          }
        }
      }
    }
  }
}

// Backward after a NaN: dq of the rows that are reached, dk and dv of the keys that those rows see. Other batch
// elements and key heads are what they were.
void expect_backward(const Strike& strike, const Solved& clean, const Solved& run) {
  const AttentionProblem& p = strike.p();
  const auto poisoned = [](const MutableTensorView& view, std::int64_t h, std::int64_t row) {
    for (std::int64_t n = 0; n < view.sizes[3]; ++n) {
      if (!std::isfinite(at(view, kBatch, h, row, n))) return true;
    }
    return false;
  };
  for (std::int64_t i = 0; i < p.len_q; ++i) {
    if (strike.reaches(kBatch, kHead, i)) {
      EXPECT_TRUE(poisoned(run.tensors.dq.view(), kHead, i)) << "dq " << i;
    }
  }
  for (std::int64_t j = 0; j < p.len_k; ++j) {
    if (!strike.spreads_to(j)) continue;
    EXPECT_TRUE(poisoned(run.tensors.dk.view(), kKeyHead, j)) << "dk " << j;
    if (strike.tensor != Struck::v) {  // dv = P^T dout has no value in it
      EXPECT_TRUE(poisoned(run.tensors.dv.view(), kKeyHead, j)) << "dv " << j;
    }
  }
  for (const auto& [was, is] : {std::pair{&clean.tensors.dq, &run.tensors.dq},
                                {&clean.tensors.dk, &run.tensors.dk},
                                {&clean.tensors.dv, &run.tensors.dv}}) {
    const MutableTensorView view = is->view();
    const std::int64_t heads_per_key = view.sizes[1] / p.heads_kv;
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < view.sizes[1]; ++h) {
        if (b == kBatch && h / heads_per_key == kKeyHead) continue;
        for (std::int64_t i = 0; i < view.sizes[2]; ++i) {
          for (std::int64_t n = 0; n < view.sizes[3]; ++n) EXPECT_EQ(at(was->view(), b, h, i, n), at(view, b, h, i, n));
        }
      }
    }
  }
}

struct Row {
  const char* name;
  Struck tensor;
};

class Nonfinite : public testing::TestWithParam<Row> {};

TEST_P(Nonfinite, PoisonsOnlyResultsThatMaySeeIt) {
  for (const char* mask : {"none", "causal_top_left"}) {
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      const Strike strike{GetParam().tensor,
                          verification::attention_case("pass=e2e b=2 hq=4 hkv=2 lq=40 lk=70 d=24 dv=16 mask=" +
                                                       std::string(mask) + " dtype=" + dtype)};
      for (const std::string& engine : engines()) {
        if (!takes(engine, strike.p()) || !takes(engine, backward_of(strike.p()))) continue;
        const Solved clean = run_with(engine, strike, 0);
        for (const float value : {kNan, kInfinity, -kInfinity}) {
          SCOPED_TRACE(engine + " " + mask + " " + dtype + " " + std::to_string(value));
          const Solved run = run_with(engine, strike, value);
          EXPECT_TRUE(run.forward_ok && run.backward_ok) << run.reason;
          if (!std::isnan(value)) continue;
          expect_forward(strike, clean, run);
          expect_backward(strike, clean, run);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(NonfiniteRow, WhoseScoresAreAllMinusInfinityIsNaN) {
  for (const char* dtype : {"fp32", "bf16"}) {
    const verification::AttentionCase c =
        verification::attention_case("pass=e2e b=1 hq=2 hkv=1 lq=5 lk=70 d=8 dtype=" + std::string(dtype));
    for (const std::string& engine : engines()) {
      if (!takes(engine, c.problem) || !takes(engine, backward_of(c.problem))) continue;
      SCOPED_TRACE(engine + " " + dtype);
      const verification::CaseTensors tensors = verification::make_tensors(c);
      for (std::int64_t h = 0; h < 2; ++h)
        set(tensors.q.view(), 0, h, 3, 2, 1.0f), set(tensors.q.view(), 0, h, 1, 2, 0);
      for (std::int64_t j = 0; j < 70; ++j) set(tensors.k.view(), 0, 0, j, 2, -kInfinity);
      attention_forward(tensors.forward(), options_on(engine, c));
      attention_backward(tensors.backward(), options_on(engine, c));
      EXPECT_TRUE(std::isnan(at(tensors.lse.view(), 0, 1, 3, 0)));
      for (const auto* output : {&tensors.out, &tensors.dq}) EXPECT_TRUE(std::isnan(at(output->view(), 0, 1, 3, 4)));
      for (const auto* output : {&tensors.dk, &tensors.dv}) EXPECT_TRUE(std::isnan(at(output->view(), 0, 0, 9, 4)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Visible, Nonfinite,
                         testing::Values(Row{"q", Struck::q}, Row{"k", Struck::k}, Row{"v", Struck::v},
                                         Row{"dout", Struck::dout}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace fovea
