// Lengths around tiles and integer limits, head counts and head dimensions that break kernels, on every engine.

#include "attention/engines.h"
#include "verification/attention/cases.h"

namespace fovea {
namespace {

TEST(Shapes, BothCausalAlignmentsAndEveryOrderOfLengths) {
  for (const char* mask : {"causal_top_left", "causal_bottom_right"}) {
    for (const char* lengths : {"lq=20 lk=90", "lq=90 lk=20", "lq=64 lk=64", "lq=2 lk=5", "lq=5 lk=2", "lq=1 lk=200"}) {
      for (const char* dtype : {"fp32", "bf16", "fp16"}) {
        expect_right_everywhere("pass=e2e b=1 hq=2 d=16 " + std::string(lengths) + " mask=" + mask + " dtype=" + dtype);
      }
    }
  }
}

TEST(Shapes, WindowsOfEveryAlignmentAndOrderOfLengths) {
  for (const char* lengths : {"lq=20 lk=90", "lq=90 lk=20", "lq=200 lk=333", "lq=333 lk=200", "lq=1 lk=300"}) {
    for (const char* mask :
         {"window_top_left left=5 right=0", "window_top_left left=0 right=0", "window_bottom_right left=96 right=3",
          "window_bottom_right left=0 right=150", "window_bottom_right left=130 right=unlimited",
          "window_top_left left=unlimited right=47"}) {
      for (const char* heads : {"hq=2 hkv=2", "hq=3 hkv=1"})
        expect_right_everywhere("pass=e2e b=1 d=16 " + std::string(heads) + " " + lengths + " mask=" + mask);
    }
  }
}

// Several chunks of keys, which the CPU's backward cuts long sequences into, and most of a chunk's rows hidden.
TEST(Shapes, WindowsOverLongSequences) {
  for (const char* mask :
       {"window left=63 right=0", "window left=300 right=20", "window_bottom_right left=0 right=999"}) {
    for (const char* dtype : {"fp32", "bf16"})
      expect_right_everywhere("pass=e2e b=1 hq=3 hkv=1 lq=2100 d=8 mask=" + std::string(mask) + " dtype=" + dtype);
  }
}

TEST(Shapes, GroupsOfEverySize) {
  for (const char* heads : {"hq=1 hkv=1", "hq=2 hkv=1", "hq=3 hkv=1", "hq=10 hkv=2", "hq=12 hkv=2", "hq=7 hkv=1",
                            "hq=16 hkv=2", "hq=12 hkv=1"}) {
    for (const char* lengths : {"lq=65", "lq=33", "lq=129"}) {
      expect_right_everywhere("pass=e2e b=2 d=24 mask=causal " + std::string(heads) + " " + lengths);
    }
  }
}

TEST(Shapes, LengthsAround65536) {
  for (const char* length : {"32767", "32768", "32769", "65535", "65536", "65537"}) {
    expect_right_everywhere("b=1 hq=1 lq=1 d=8 lk=" + std::string(length));
    expect_right_everywhere("b=1 hq=1 lk=3 d=8 lq=" + std::string(length));
  }
}

TEST(Shapes, ManyBatchesAndHeads) {
  expect_right_everywhere("pass=e2e b=65537 hq=1 lq=1 d=4");
  expect_right_everywhere("pass=e2e b=1 hq=65537 lq=1 d=4");
  expect_right_everywhere("pass=e2e b=3 hq=30000 hkv=10000 lq=2 d=2");
}

TEST(Shapes, TheSmallestHeadDimensions) {
  for (const char* dims : {"d=1", "d=1 dv=2", "d=2 dv=1", "d=3", "d=5 dv=7"}) {
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      expect_right_everywhere("pass=e2e b=2 hq=2 lq=19 lk=37 " + std::string(dims) + " dtype=" + dtype);
    }
  }
}

TEST(Shapes, EveryPairOfHeadDimensions) {
  constexpr std::int64_t kDims[] = {8, 40, 64, 96, 128, 192, 256, 320};
  for (const std::int64_t dim_qk : kDims) {
    for (const std::int64_t dim_v : kDims) {
      expect_right_everywhere("pass=e2e b=1 hq=1 lq=21 lk=35 d=" + std::to_string(dim_qk) +
                              " dv=" + std::to_string(dim_v));
    }
  }
}

TEST(Shapes, FewQueriesAndBatchesOfEverySize) {
  for (int n = 1; n <= 33; ++n) {
    expect_right_everywhere("pass=e2e hq=2 hkv=1 lq=3 lk=17 d=8 b=" + std::to_string(n));
    expect_right_everywhere("pass=e2e b=1 hq=2 hkv=1 lk=70 d=8 mask=causal_bottom_right lq=" + std::to_string(n));
  }
}

TEST(Shapes, EveryInterestingLength) {
  for (const std::int64_t length : verification::interesting_lengths()) {
    if (length > 600) continue;
    expect_right_everywhere("pass=e2e b=1 hq=1 d=8 lq=5 lk=" + std::to_string(length));
    expect_right_everywhere("pass=e2e b=1 hq=1 d=8 lk=5 mask=causal_bottom_right lq=" + std::to_string(length));
  }
}

}  // namespace
}  // namespace fovea
