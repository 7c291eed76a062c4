// Masked rows, extreme logits, rising maxima, NaN in hidden places: bugs that other libraries have had, on every
// engine.
#include <cmath>
#include <limits>

#include "attention/engines.h"

namespace fovea {
namespace {

void fill(const MutableTensorView& view, float value) {
  for (std::int64_t b = 0; b < view.sizes[0]; ++b) {
    for (std::int64_t h = 0; h < view.sizes[1]; ++h) {
      for (std::int64_t i = 0; i < view.sizes[2]; ++i) {
        for (std::int64_t c = 0; c < view.sizes[3]; ++c) set(view, b, h, i, c, value);
      }
    }
  }
}

// Inputs of a line, changed by `change`, solved by every engine that takes it, judged by the contract's rule.
template <class Change>
void expect_right_with(const std::string& line, Change change) {
  const verification::AttentionCase c = verification::attention_case(line);
  for (const std::string& engine : engines()) {
    if (!takes(engine, c.problem) || !takes(engine, backward_of(c.problem))) continue;
    SCOPED_TRACE(engine + ": " + line);
    verification::CaseTensors tensors = verification::make_tensors(c);
    change(tensors);
    attention_forward(tensors.forward(), options_on(engine, c));
    const auto forward = verification::check_forward(c.problem, tensors.forward(), 1);
    EXPECT_TRUE(forward.ok) << forward.reason();
    attention_backward(tensors.backward(), options_on(engine, c));
    const auto backward = verification::check_backward(backward_of(c.problem), tensors.backward(), 1);
    EXPECT_TRUE(backward.ok) << backward.reason();
  }
}

TEST(HardInputs, FullyMaskedRowsAreExactlyZero) {
  for (const char* lengths : {"lq=34 lk=1", "lq=146 lk=1", "lq=300 lk=17", "lq=65 lk=64", "lq=129 lk=3"}) {
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      const verification::AttentionCase c = verification::attention_case(
          "pass=e2e b=2 hq=4 hkv=2 d=40 mask=causal_bottom_right dtype=" + std::string(dtype) + " " + lengths);
      for (const std::string& engine : engines()) {
        if (!takes(engine, backward_of(c.problem))) continue;
        SCOPED_TRACE(engine + " " + lengths + " " + dtype);
        const auto tensors = solved_by(engine, c);
        for (std::int64_t i = 0; i < c.problem.len_q - c.problem.len_k; ++i) {
          EXPECT_EQ(at(tensors.lse.view(), 1, 3, i, 0), -kInfinity);
          for (std::int64_t n = 0; n < 40; ++n) {
            EXPECT_EQ(at(tensors.out.view(), 1, 3, i, n), 0.0f);
            EXPECT_EQ(at(tensors.dq.view(), 1, 3, i, n), 0.0f);
          }
        }
        for (const auto* gradient : {&tensors.dk, &tensors.dv}) {
          for (const float value : values_of(gradient->view())) ASSERT_TRUE(std::isfinite(value));
        }
      }
    }
  }
}

TEST(HardInputs, ZeroKeys) {
  for (const char* mask : {"none", "causal_top_left", "causal_bottom_right"}) {
    const verification::AttentionCase c =
        verification::attention_case("pass=e2e b=2 hq=3 lq=70 lk=0 d=24 dv=16 mask=" + std::string(mask));
    for (const std::string& engine : engines()) {
      if (!takes(engine, backward_of(c.problem))) continue;
      SCOPED_TRACE(engine + " " + mask);
      const auto tensors = solved_by(engine, c);
      for (const float value : values_of(tensors.out.view())) ASSERT_EQ(value, 0.0f);
      for (const float value : values_of(tensors.lse.view())) ASSERT_EQ(value, -kInfinity);
      for (const float value : values_of(tensors.dq.view())) ASSERT_EQ(value, 0.0f);
    }
  }
}

TEST(HardInputs, ZeroBatchesHeadsAndQueries) {
  for (const char* sizes : {"b=0 hq=2 lq=5 d=8", "b=2 hq=0 hkv=0 lq=5 d=8", "b=2 hq=0 hkv=3 lq=5 d=8",
                            "b=1 hq=2 lq=0 lk=9 d=8", "b=1 hq=2 lq=0 d=8 mask=causal", "b=0 hq=0 hkv=0 lq=0 d=1"}) {
    const verification::AttentionCase c = verification::attention_case("pass=e2e " + std::string(sizes));
    for (const std::string& engine : engines()) {
      if (!takes(engine, backward_of(c.problem))) continue;
      SCOPED_TRACE(engine + " " + sizes);
      const auto tensors = solved_by(engine, c);
      for (const auto* gradient : {&tensors.dk, &tensors.dv}) {
        for (const float value : values_of(gradient->view())) ASSERT_EQ(value, 0.0f);
      }
    }
  }
}

// Every score the same, far below or above 0: P = 1 / keys, and an lse of score + log(keys).
TEST(HardInputs, LogitsFarFromZero) {
  for (const double score : {-200.0, -2.45e5, 1e2, -1e4, 1e5, -1e5, 1e30, -1e30}) {
    for (const char* shape : {"lq=5 lk=70", "lq=88 lk=448 mask=causal_bottom_right"}) {
      const verification::AttentionCase c =
          verification::attention_case("b=1 hq=7 hkv=1 d=16 scale=1 " + std::string(shape));
      for (const std::string& engine : engines()) {
        if (!takes(engine, c.problem)) continue;
        SCOPED_TRACE(engine + " " + shape + " score " + std::to_string(score));
        verification::CaseTensors tensors = verification::make_tensors(c);
        fill(tensors.q.view(), 0.0f);
        fill(tensors.k.view(), 0.0f);
        for (std::int64_t h = 0; h < 7; ++h) {
          for (std::int64_t i = 0; i < c.problem.len_q; ++i) set(tensors.q.view(), 0, h, i, 3, 1.0f);
        }
        for (std::int64_t j = 0; j < c.problem.len_k; ++j) set(tensors.k.view(), 0, 0, j, 3, static_cast<float>(score));
        attention_forward(tensors.forward(), options_on(engine, c));
        const auto verdict = verification::check_forward(c.problem, tensors.forward(), 1);
        EXPECT_TRUE(verdict.ok) << verdict.reason();
        const std::int64_t last = c.problem.len_q - 1;  // sees every key
        const double lse = score + std::log(static_cast<double>(c.problem.len_k));
        // Six roundings of numbers of this size: the score, log2(e), their product, its sum with the logarithm, ln 2
        // and the product with it.
        EXPECT_NEAR(at(tensors.lse.view(), 0, 6, last, 0), lse,
                    6 * 0x1p-24 * (std::abs(score) + std::abs(lse - score)));
      }
    }
  }
}

// A score is not lost where fp32 cannot hold the scale: what the engine cannot compute it leaves to the reference.
TEST(HardInputs, ScalesBeyondFp32) {
  struct Extreme {
    const char* scale;
    float q, k;
  };
  for (const auto& [scale, q, k] : {Extreme{"7e-39", 1e19f, 1e19f},
                                    {"-1e-42", 1e21f, 1e21f},
                                    {"3e38", 1e-19f, 1e-19f},
                                    {"-1e60", 1e-30f, 1e-30f}}) {
    const verification::AttentionCase c =
        verification::attention_case("pass=e2e b=1 hq=1 lq=4 lk=3 d=8 scale=" + std::string(scale));
    SCOPED_TRACE(scale);
    for (const std::string& engine : engines()) EXPECT_EQ(takes(engine, c.problem), engine == "reference") << engine;
    verification::CaseTensors tensors = verification::make_tensors(c);
    fill(tensors.q.view(), 0.0f);
    fill(tensors.k.view(), 0.0f);
    for (std::int64_t i = 0; i < 4; ++i) set(tensors.q.view(), 0, 0, i, 3, q);
    set(tensors.k.view(), 0, 0, 1, 3, k);
    attention_forward(tensors.forward(), {.scale = c.problem.scale});
    const double score = c.problem.scale * static_cast<double>(q) * static_cast<double>(k);
    EXPECT_NEAR(at(tensors.lse.view(), 0, 0, 2, 0), std::log(2 + std::exp(score)), 1e-6);
  }
}

// Products are added before they are divided: 2^8 (what a probability may be before) times the number of keys times the
// largest value must stay below the largest fp32 number.
TEST(HardInputs, ValuesUpToTheStatedLimit) {
  const float largest = std::numeric_limits<float>::max() / 1024 / 256;
  for (const char* queries : {"3", "64"}) {  // a kernel for few queries has its own sums
    const verification::AttentionCase c =
        verification::attention_case("b=1 hq=1 lk=1024 d=8 data=ramps lq=" + std::string(queries));
    for (const std::string& engine : engines()) {
      if (!takes(engine, c.problem)) continue;
      SCOPED_TRACE(engine + " lq=" + queries);
      verification::CaseTensors tensors = verification::make_tensors(c);
      fill(tensors.v.view(), largest);
      attention_forward(tensors.forward(), options_on(engine, c));
      for (const float value : values_of(tensors.out.view())) EXPECT_NEAR(value / largest, 1.0f, 1e-5f);
    }
  }
}

// D of docs/numerics.md is 0.94 times its limit. Half of the keys have v = size, half -size, and all P are equal: dP is
// D or -D, delta is 0, and dq sums 64 terms of one sign.
TEST(HardInputs, GradientsUpToTheStatedLimit) {
  constexpr float kDout = 1e18f, kSize = 2e19f, kLargest = 8 * kDout * kSize;
  const verification::AttentionCase c =
      verification::attention_case("pass=bwd b=1 hq=1 lq=64 d=8 scale=0.5 data=ramps");
  for (const std::string& engine : engines()) {
    if (!takes(engine, c.problem) || !takes(engine, backward_of(c.problem))) continue;
    SCOPED_TRACE(engine);
    verification::CaseTensors tensors = verification::make_tensors(c);
    fill(tensors.q.view(), 0.0f), fill(tensors.dout.view(), kDout);
    for (std::int64_t j = 0; j < 64; ++j) {
      const float sign = j % 2 == 0 ? 1.0f : -1.0f;
      for (std::int64_t n = 0; n < 8; ++n)
        set(tensors.k.view(), 0, 0, j, n, sign), set(tensors.v.view(), 0, 0, j, n, sign * kSize);
    }
    attention_forward(tensors.forward(), options_on(engine, c));
    attention_backward(tensors.backward(), options_on(engine, c));
    for (const float value : values_of(tensors.dq.view())) EXPECT_NEAR(value / (0.5f * kLargest), 1.0f, 1e-5f);
    for (const float value : values_of(tensors.dk.view())) EXPECT_EQ(value, 0.0f);
    for (const float value : values_of(tensors.dv.view())) EXPECT_NEAR(value / kDout, 1.0f, 1e-5f);
  }
}

TEST(HardInputs, ShortSequencesWithLargeInputs) {
  for (const char* length : {"1", "2", "5", "17", "63", "65"}) {
    for (const char* data : {"peaked", "large", "outliers"}) {
      for (const char* dtype : {"fp32", "bf16", "fp16"}) {
        expect_right_everywhere("pass=e2e b=1 hq=1 d=16 lq=" + std::string(length) + " data=" + data +
                                " dtype=" + dtype);
      }
    }
  }
}

TEST(HardInputs, HiddenKeysMayHoldAnything) {
  // Top left, more keys than queries: keys from len_q on are seen by nobody, those beyond a tile lie in hidden tiles.
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    const std::string line = "pass=e2e b=1 hq=2 lq=40 lk=1300 d=32 mask=causal_top_left dtype=" + std::string(dtype);
    const verification::AttentionCase c = verification::attention_case(line);
    for (const std::string& engine : engines()) {
      if (!takes(engine, backward_of(c.problem))) continue;
      SCOPED_TRACE(engine + " " + dtype);
      const auto clean = solved_by(engine, c);
      for (const float strange : {kNan, kInfinity, -kInfinity}) {
        verification::CaseTensors tensors = verification::make_tensors(c);
        for (std::int64_t h = 0; h < 2; ++h) {
          for (std::int64_t j = 40; j < 1300; ++j) {
            for (std::int64_t n = 0; n < 32; ++n) {
              set(tensors.k.view(), 0, h, j, n, strange);
              if (j >= 1100) set(tensors.v.view(), 0, h, j, n, strange);
            }
          }
        }
        attention_forward(tensors.forward(), options_on(engine, c));
        EXPECT_EQ(values_of(clean.out.view()), values_of(tensors.out.view()));
        EXPECT_EQ(values_of(clean.lse.view()), values_of(tensors.lse.view()));
      }
    }
  }
}

TEST(HardInputs, NanInOneQueryPoisonsThatRowOnly) {
  const verification::AttentionCase c = verification::attention_case("b=2 hq=2 lq=70 lk=90 d=24");
  for (const std::string& engine : engines()) {
    if (!takes(engine, c.problem)) continue;
    SCOPED_TRACE(engine);
    const auto clean = solved_by(engine, c);
    verification::CaseTensors tensors = verification::make_tensors(c);
    set(tensors.q.view(), 1, 0, 33, 5, kNan);
    attention_forward(tensors.forward(), options_on(engine, c));
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t i = 0; i < 70; ++i) {
          for (std::int64_t n = 0; n < 24; ++n) {
            const float value = at(tensors.out.view(), b, h, i, n);
            if (b == 1 && h == 0 && i == 33) {
              EXPECT_TRUE(std::isnan(value));
            } else {
              EXPECT_EQ(value, at(clean.out.view(), b, h, i, n));
            }
          }
        }
      }
    }
  }
}

TEST(HardInputs, LargeValuesDoNotOverflowTheSums) {
  expect_right_with("pass=e2e b=1 hq=1 lq=3 lk=2000 d=16 dv=8 dtype=fp16 scale=0.001", [](auto& tensors) {
    fill(tensors.v.view(), 3e4f);
    fill(tensors.dout.view(), 1e-3f);
  });
}

TEST(HardInputs, MaximaThatRiseInEveryTile) {
  for (const char* seed : {"0", "1", "2", "3", "4", "5", "6", "7"}) {
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      expect_right_everywhere("pass=e2e b=1 hq=1 lq=40 lk=700 d=16 data=ramps dtype=" + std::string(dtype) +
                              " seed=" + seed);
    }
  }
}

TEST(HardInputs, ProductsBeyondHalfPrecisionBeforeTheScale) {
  expect_right_with("pass=e2e b=1 hq=1 lq=9 lk=40 d=32 dtype=fp16 scale=0.001", [](auto& tensors) {
    for (std::int64_t i = 0; i < 9; ++i) set(tensors.q.view(), 0, 0, i, 0, 400.0f);
    for (std::int64_t j = 0; j < 40; ++j) set(tensors.k.view(), 0, 0, j, 0, 250.0f);
  });
}

TEST(HardInputs, MassiveActivationsAndRepeatedRows) {
  for (const char* data : {"outliers", "constant", "denormal", "integers", "onehot", "ones"}) {
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      for (const char* shape : {"lq=100 d=64", "lq=33 lk=129 d=128 mask=causal_bottom_right", "lq=70 d=256"}) {
        expect_right_everywhere("pass=e2e b=2 hq=2 hkv=1 data=" + std::string(data) + " dtype=" + dtype + " " + shape);
      }
    }
  }
}

// A first key that dominates everything, and one that everything dominates.
TEST(HardInputs, TheMaximumInTheFirstMiddleOrLastTile) {
  for (const std::int64_t place : {0, 1, 63, 64, 200, 399}) {
    for (const float size : {40.0f, -40.0f}) {
      expect_right_with("pass=e2e b=1 hq=2 lq=70 lk=400 d=16 scale=1", [place, size](auto& tensors) {
        for (std::int64_t h = 0; h < 2; ++h) {
          for (std::int64_t i = 0; i < 70; ++i) set(tensors.q.view(), 0, h, i, 0, 2.0f);
          set(tensors.k.view(), 0, h, place, 0, size);
        }
      });
    }
  }
}

// merge_partials: the exponential of a difference of any size stays finite, -inf marks a part without keys.
TEST(HardInputs, MergingPartialsOfVeryDifferentLse) {
  for (const float difference : {0.0f, 1.0f, -1.0f, 88.0f, -88.0f, 89.0f, -89.0f, 1000.0f, -1000.0f, kInfinity}) {
    float out_a[2] = {1.0f, 2.0f}, out_b[2] = {3.0f, -5.0f}, merged[2] = {kNan, kNan};
    float lse_a = 3.0f, lse_b = 3.0f - difference, lse = kNan;
    const PartialResult parts[] = {{contiguous(out_a, {1, 1, 1, 2}), contiguous(&lse_a, {1, 1, 1, 1})},
                                   {contiguous(out_b, {1, 1, 1, 2}), contiguous(&lse_b, {1, 1, 1, 1})}};
    merge_partials(parts, contiguous(merged, {1, 1, 1, 2}), contiguous(&lse, {1, 1, 1, 1}));
    const double ratio = std::exp(-std::abs(static_cast<double>(difference)));  // smaller sum of exponentials / larger
    const bool first = difference >= 0;
    const double heavy = first ? 1.0 : 3.0, light = first ? 3.0 : 1.0;
    // Sums in double precision, rounded once.
    const double wanted = (heavy + ratio * light) / (1 + ratio),
                 wanted_lse = std::max(lse_a, lse_b) + std::log1p(ratio);
    EXPECT_NEAR(merged[0], wanted, 0x1p-24 * (heavy + light)) << difference;
    EXPECT_NEAR(lse, wanted_lse, 0x1p-24 * wanted_lse) << difference;
  }
}

TEST(HardInputs, MergingPartialsWithoutKeys) {
  float out_a = 0, out_b = 0, merged = kNan, lse_a = -kInfinity, lse_b = -kInfinity, lse = kNan;
  const Sizes one{1, 1, 1, 1};
  const PartialResult parts[] = {{contiguous(&out_a, one), contiguous(&lse_a, one)},
                                 {contiguous(&out_b, one), contiguous(&lse_b, one)}};
  merge_partials(parts, contiguous(&merged, one), contiguous(&lse, one));
  EXPECT_EQ(merged, 0.0f);
  EXPECT_EQ(lse, -kInfinity);
}

}  // namespace
}  // namespace fovea
