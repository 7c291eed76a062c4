// Placements put tensors where they say, poison shows writes outside, values depend on their position only.
#include "verification/attention/case_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/float16.h"
#include "verification/attention/operation.h"

namespace fovea::verification {
namespace {

float element(const MutableTensorView& view, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t c) {
  return core::load_as_float(view.data, view.dtype,
                             b * view.strides[0] + h * view.strides[1] + i * view.strides[2] + c);
}

AttentionCase case_of(std::string_view line) { return attention_case(line); }

TensorSpec spec_of(const AttentionCase& c, std::string_view name) {
  for (const TensorSpec& spec : attention_operation().tensors(verification::case_of(c))) {
    if (spec.name == name) return spec;
  }
  return {};
}

TEST(CaseTensors, ValuesDoNotDependOnPlacementOrLayout) {
  const std::string problem = "pass=bwd b=2 hq=3 lq=5 d=4 seed=9 place=";
  const CaseTensors plain = make_tensors(case_of(problem + "contiguous"));
  for (const char* other : {"strided", "guarded", "guarded_front", "contiguous layout=blhd", "strided layout=blhd"}) {
    const CaseTensors placed = make_tensors(case_of(problem + other));
    for (std::int64_t n = 0; n < 2 * 3 * 5 * 4; ++n) {
      const std::int64_t b = n / 60, h = n / 20 % 3, i = n / 4 % 5, c = n % 4;
      EXPECT_EQ(element(plain.k.view(), b, h, i, c), element(placed.k.view(), b, h, i, c)) << other;
      EXPECT_EQ(element(plain.dout.view(), b, h, i, c), element(placed.dout.view(), b, h, i, c)) << other;
    }
  }
}

TEST(CaseTensors, RolesAndSeedsDiffer) {
  const CaseTensors one = make_tensors(case_of("b=1 hq=1 lq=8 d=8 seed=1")),
                    two = make_tensors(case_of("b=1 hq=1 lq=8 d=8 seed=2"));
  std::set<float> values;
  for (const auto* tensor : {&one.q, &one.k, &one.v, &two.q, &two.k, &two.v}) {
    for (std::int64_t c = 0; c < 8; ++c) values.insert(element(tensor->view(), 0, 0, 3, c));
  }
  EXPECT_GT(values.size(), 45u);
}

TEST(CaseTensors, PaddingRevealsWritesOutsideTheTensor) {
  for (const char* place : {"strided", "guarded", "guarded_front"}) {
    for (const char* layout : {"bhld", "blhd"}) {
      const verification::AttentionCase c =
          case_of(std::string("b=2 hq=2 lq=3 d=5 place=") + place + " layout=" + layout);
      const CaseTensors tensors = make_tensors(c);
      EXPECT_TRUE(tensors.out.padding_intact());
      fill(verification::case_of(c), spec_of(c, "q"), tensors.out.view());  // its own elements only
      EXPECT_TRUE(tensors.out.padding_intact()) << place;
      auto* const data = static_cast<float*>(tensors.out.view().data);
      const std::int64_t last = tensors.out.view().buffer_bytes / 4 - 1;
      const bool before = std::string_view(place) == "guarded";
      const std::int64_t outside = std::string_view(place) == "strided" ? 5 : before ? -1 : last + 1;
      data[outside] = 0.0f;
      EXPECT_FALSE(tensors.out.padding_intact()) << place << " " << layout;
    }
  }
}

TEST(CaseTensorsDeathTest, GuardPagesStopTheFirstElementOutside) {
  const CaseTensors end = make_tensors(case_of("lq=5 d=7 place=guarded")),
                    front = make_tensors(case_of("lq=5 d=7 place=guarded_front"));
  volatile const float* after = static_cast<const float*>(end.k.view().data) + 35;
  volatile const float* before = static_cast<const float*>(front.k.view().data) - 1;
  EXPECT_EQ(after[-1], after[-1]);
  EXPECT_DEATH((void)after[0], "");
  EXPECT_DEATH((void)before[0], "");
}

TEST(CaseTensors, BroadcastInputsRepeatAndOutputsDoNot) {
  for (const char* seed : {"0", "1"}) {
    const CaseTensors tensors = make_tensors(case_of(std::string("b=2 hq=2 lq=3 d=4 place=broadcast seed=") + seed));
    EXPECT_EQ(tensors.k.view().strides[seed[0] - '0'], 0);
    EXPECT_NE(tensors.out.view().strides[seed[0] - '0'], 0);
  }
}

TEST(CaseTensors, EmptyTensorsAreMade) {
  for (const char* size : {"b=0", "hq=0 hkv=0", "lq=0 lk=3", "lk=0 lq=3"}) {
    for (const char* place : {"contiguous", "strided", "broadcast", "guarded", "guarded_front"}) {
      EXPECT_TRUE(make_tensors(case_of(std::string("pass=bwd d=4 ") + size + " place=" + place)).padding_intact());
    }
  }
}

TEST(CaseTensors, EveryFamilyButNonfiniteIsFinite) {
  for (const std::string_view family : verification::kDataFamilies) {
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      const verification::AttentionCase c =
          case_of("pass=bwd b=2 hq=2 lq=300 d=8 dtype=" + std::string(dtype) + " data=" + std::string(family));
      const CaseTensors tensors = make_tensors(c);
      std::int64_t strange = 0;
      for (const auto* tensor : {&tensors.q, &tensors.k, &tensors.v, &tensors.dout}) {
        for (std::int64_t n = 0; n < 2 * 2 * 300 * 8; ++n)
          strange += std::isfinite(core::load_as_float(tensor->view().data, tensor->view().dtype, n)) ? 0 : 1;
      }
      EXPECT_EQ(strange > 0, family == "nonfinite") << family << " " << dtype;
    }
  }
}

}  // namespace
}  // namespace fovea::verification
