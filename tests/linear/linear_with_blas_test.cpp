// oneDNN and OpenBLAS are registered, as the program does it: Linear's tests run over them too.
#include <gtest/gtest.h>

#include "fovea/linear.h"
#include "linear/blas/blas.h"
#include "linear/blas/matmul_primitive.h"
#include "linear/host_kernels.h"

namespace fovea::linear {
namespace {

class Registered : public testing::Environment {
 public:
  void SetUp() override {
    ASSERT_EQ(explain(LinearProblem{}).chosen, "cpu.own");  // a call before libraries are known does not hide them
    register_host_libraries(blas::libraries());
    blas::register_bare_calls();
  }
};
const auto* const registered = testing::AddGlobalTestEnvironment(new Registered);

TEST(LinearWithBlas, ALibraryIsChosenForTheTypesItIsFasterFor) {
  const Explanation fp32 = explain(LinearProblem{});
  EXPECT_EQ(fp32.chosen, blas::has_avx512() ? "cpu.onednn" : "cpu.openblas");
  const Explanation many_rows = explain(LinearProblem{.len = 1024, .dim_in = 1024, .dim_out = 1024});
  if (host_kernels(DType::fp32).lanes >= 8) {
    EXPECT_EQ(many_rows.chosen, "cpu.own");
    EXPECT_EQ(many_rows.walk.at(blas::has_avx512() ? 0 : 1).reason,
              "runs only when named: slower in fp32 than the engine's own kernels from 32 rows on");
  } else {
    EXPECT_EQ(many_rows.chosen, fp32.chosen);
  }
  const LinearProblem half{.dtype = DType::fp16, .result_dtype = DType::fp16, .parameter_dtype = DType::fp16};
  const Explanation fp16 = explain(half);
  EXPECT_EQ(fp16.chosen, "cpu.own");
  EXPECT_EQ(explain(half, "cpu.onednn").walk.front().reason, "has no fp16 product on CPUs");
}

TEST(LinearWithBlas, LibrariesComeBeforeTheOwnProduct) {
  std::vector<std::string> names;
  for (const ImplementationInfo& one : linear_implementations()) {
    if (one.device == DeviceKind::cpu) names.push_back(one.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"cpu.onednn", "cpu.openblas", "cpu.own", "cpu.bare_matmul",
                                             "cpu.bare_sgemm", "cpu.bare_openblas"}));
}

TEST(LinearWithBlas, BareCallsRunWhenNamedAndOnlyMultiply) {
  for (const char* name : {"cpu.bare_matmul", "cpu.bare_sgemm", "cpu.bare_openblas"}) {
    EXPECT_EQ(explain(LinearProblem{}, name).chosen, name);
    const Explanation biased = explain(LinearProblem{.bias = true}, name);
    EXPECT_EQ(biased.chosen, "");
    EXPECT_EQ(biased.walk.front().reason, "multiplies only: no bias, no copies of inputs");
    EXPECT_EQ(explain(LinearProblem{.len = 0}, name).walk.front().reason, "takes no empty product");
  }
  for (const Explanation::Step& step : explain(LinearProblem{}).walk) {
    if (step.name.find("bare") != std::string::npos) {
      EXPECT_EQ(step.reason, "runs only when named: it is there to be measured against");
    }
  }
}

TEST(LinearWithBlas, TilesFollowTheShape) {
  const auto tiles = [](const LinearProblem& problem) { return explain(problem, "cpu.onednn").tiles; };
  EXPECT_EQ(tiles({.len = 1024, .dim_in = 1024, .dim_out = 1024}),
            "1024 x 1024 x 1024: 2 tiles of 1024 x 512, each one call of oneDNN");
  EXPECT_EQ(tiles({.len = 2048, .dim_in = 2048, .dim_out = 2048}),
            "2048 x 2048 x 2048: 8 tiles of 1024 x 512, each one call of oneDNN");
  EXPECT_EQ(tiles({.len = 128, .dim_in = 64, .dim_out = 64}),
            "128 x 64 x 64: 2 tiles of 64 x 64, each one call of oneDNN");
}

TEST(LinearWithBlas, TheSlowerLibraryRunsWhenNamed) {
  const bool avx512 = blas::has_avx512();
  const std::string slower = avx512 ? "cpu.openblas" : "cpu.onednn";
  EXPECT_EQ(explain(LinearProblem{}, slower).chosen, slower);
  EXPECT_EQ(explain(LinearProblem{}).walk.at(avx512 ? 1 : 0).reason,
            avx512 ? "runs only when named: slower than oneDNN on processors with AVX-512"
                   : "runs only when named: slower than OpenBLAS on processors without AVX-512");
}

}  // namespace
}  // namespace fovea::linear
