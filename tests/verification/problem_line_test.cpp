// The problem line: canonical print, defaults, sweeps, and refusals with their position.
#include "verification/problem_line.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fovea/error.h"
#include "verification/attention/case.h"

namespace fovea::verification {
namespace {

TEST(ProblemLine, CanonicalPrintOmitsNothingAndParsesBack) {
  const Case c = parse_case("b=2 hq=8 hkv=2 lq=4k d=64 dtype=bf16 mask=causal");
  EXPECT_EQ(line_of(c),
            "op=attention pass=fwd b=2 hq=8 hkv=2 lq=4096 lk=4096 d=64 dv=64 dtype=bf16 mask=causal layout=bhld "
            "scale=0.125 device=cpu data=normal place=contiguous seed=0");
  EXPECT_EQ(parse_case(line_of(c)), c);
}

TEST(ProblemLine, WindowsPrintTheirBoundsAndOtherMasksDoNot) {
  const auto printed = [](const std::string& line) {
    const Case c = parse_case(line);
    const std::string text = line_of(c);
    EXPECT_EQ(parse_case(text), c) << text;
    return text.substr(text.find("mask="), text.find(" layout=") - text.find("mask="));
  };
  EXPECT_EQ(printed("lq=4k mask=window left=1k right=0"), "mask=window left=1024 right=0");
  EXPECT_EQ(printed("lq=4k right=0 left=1023 mask=window"), "mask=window left=1023 right=0");
  EXPECT_EQ(printed("lq=4 lk=9 mask=window_top_left left=3"), "mask=window_top_left left=3 right=unlimited");
  EXPECT_EQ(printed("lq=4 lk=9 mask=window_bottom_right left=unlimited right=2"),
            "mask=window_bottom_right left=unlimited right=2");
  EXPECT_EQ(printed("mask=window left=4611686018427387904 right=1"), "mask=window left=4611686018427387904 right=1");
  for (const char* word : {"none", "causal", "causal_top_left", "causal_bottom_right"})
    EXPECT_EQ(printed(std::string("lq=4 mask=") + word), std::string("mask=") + word);
}

TEST(ProblemLine, SweepsRunOverWindows) {
  const auto cases = parse_sweep("lq=64 mask=window,window_top_left left=3,7,unlimited right=2,1");
  ASSERT_EQ(cases.size(), 12u);
  const auto mask = [&cases](std::size_t n) { return attention_case(cases[n]).problem.mask; };
  EXPECT_EQ(mask(0), Mask::window(3, 2));
  EXPECT_EQ(mask(3), Mask::window_top_left(7, 2));
  EXPECT_EQ(mask(5), Mask::window_top_left(Mask::kUnlimited, 2));
  EXPECT_EQ(mask(8), Mask::window(7, 1));
  EXPECT_EQ(parse_sweep("left=3,unlimited right=5 mask=window").size(), 2u);
}

TEST(ProblemLine, SweepVariesTheLastKeyFastest) {
  const auto cases = parse_sweep("lq=128,256 d=16,32 pass=bwd");
  ASSERT_EQ(cases.size(), 4u);
  EXPECT_EQ(cases[1].count("lq"), 256);
  EXPECT_EQ(cases[1].count("d"), 16);
  EXPECT_EQ(cases[1].count("dv"), 16);
  EXPECT_EQ(cases[3].number("scale"), 1 / std::sqrt(32.0));
}

struct Refusal {
  const char* line;
  const char* message;
};

class ProblemLineRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(ProblemLineRefusal, NamesThePosition) {
  try {
    (void)parse_sweep(GetParam().line);
    FAIL() << "accepted: " << GetParam().line;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ProblemLineRefusal,
    testing::Values(
        Refusal{"b=2 b=3", "duplicate key at position 5"}, Refusal{"lenq=4", "unknown key at position 1"},
        Refusal{"b=2 lq=4 dtpe=fp32", "did you mean `dtype`?"}, Refusal{"b=-1", "at position 3"},
        Refusal{"lq=128k8", "at position 4"}, Refusal{"lq=1e99", "at position 4"}, Refusal{"lq=0x10", "at position 4"},
        Refusal{"lq=1,,2", "at position 6"}, Refusal{"lq=", "at position 4"},
        Refusal{"lq", "without `=` at position 1"}, Refusal{"scale=nan", "at position 7"},
        Refusal{"scale=0,5x", "at position 9"}, Refusal{"hq=3 hkv=2", "hq must be a multiple of hkv at position 10"},
        Refusal{"hkv=2 d=8 hq=4,3", "at position 5"}, Refusal{"hq=4 hkv=2,3,4", "at position 12"},
        Refusal{"hkv=3", "at position 5"}, Refusal{"hq=2 hkv=0", "at position 10"},
        Refusal{"d=0", "a head dimension out of range at position 3"}, Refusal{"lq=4 d=8,0", "at position 10"},
        Refusal{"d=8 dv=0", "at position 8"}, Refusal{"dv=8 d=0", "at position 8"},
        Refusal{"d=5000 dv=8", "at position 3"}, Refusal{"lq=4 d=5000", "1 to 4096"},
        Refusal{"d=8 dv=5k", "at position 8"}, Refusal{"lq=2 lk=3 mask=causal", "aligned at position 16"},
        Refusal{"mask=none,causal lq=2 lk=3", "at position 11"},
        Refusal{"mask=windov left=1", "not a value of `mask` at position 6"},
        Refusal{"mask=window left=-1", "not a value of `left` at position 18"},
        Refusal{"mask=window right=4611686018427387905", "out of range at position 19"},
        Refusal{"mask=window right=9223372036854775807", "0 to 2^62 keys, or unlimited"},
        Refusal{"mask=window left=inf", "or unlimited"},
        Refusal{"lq=2 mask=window", "a window that hides nothing at position 11"},
        Refusal{"mask=causal left=3", "`left` has no meaning here at position 13"},
        Refusal{"lq=4 mask=window right=0", "wanted: mask=causal"},
        Refusal{"mask=window_top_left left=unlimited right=0", "a window that has a name"},
        Refusal{"mask=window,none left=3", "`left` has no meaning here"},
        Refusal{"right=3", "`right` has no meaning here"}, Refusal{"lq=2 lk=3 mask=window left=1", "got:    lq=2 lk=3"},
        Refusal{"lq=2 lk=3 mask=window left=1", "or window_top_left or window_bottom_right"},
        Refusal{"mask=window left=unlimited", "a window that hides nothing at position 6"},
        Refusal{"b=9223372036854775807 lq=9223372036854775807", "overflows at position"},
        Refusal{"b=2 lq=4 lk=99999999999999999", "overflows at position 13"},
        Refusal{"lq=9223372036854775807 b=2", "overflows at position 4"},
        Refusal{"lq=4 op=attn", "not a value of `op` at position 9"},
        Refusal{"op=attention op=attention", "duplicate key at position 14"},
        Refusal{"device=gpu", "did you mean `cuda`?"}, Refusal{"dtype=bfloat16", "did you mean `bf16`?"},
        Refusal{"pass=forward", "did you mean `fwd`?"}, Refusal{"mask=casual", "did you mean `causal`?"},
        Refusal{"pass=fdw", "did you mean `fwd`?"},
        Refusal{"pass=bdw", "did you mean `bwd`?"}, Refusal{"dtype=bf61", "did you mean `bf16`?"}));

TEST(ProblemLine, OnlyNearKeysAreSuggested) {
  const auto hint = [](const char* line) {
    try {
      (void)parse_case(line);
    } catch (const Error& error) {
      return error.details().hint;
    }
    return std::string("accepted");
  };
  for (const char* line : {"foo=1", "x=1", "zz=1", "sizes=1"}) EXPECT_EQ(hint(line), "") << line;
  EXPECT_EQ(hint("LQ=4"), "did you mean `lq`?");
  for (const char* line : {"heads=2", "hedas=2", "head=2"})
    EXPECT_EQ(hint(line), "did you mean `hq`, query heads?") << line;
  EXPECT_EQ(hint("DType=fp32"), "did you mean `dtype`?");
  EXPECT_EQ(hint("lqq=4"), "did you mean `lq`?");
  EXPECT_EQ(hint("bias=yes"), "`bias` is a key of op=mha_fused");  // the first of this program that has one
  EXPECT_EQ(hint("threads=2"), "it is an option: --threads");
  EXPECT_EQ(hint("h=4"), "did you mean `hq`?");
}

}  // namespace
}  // namespace fovea::verification
