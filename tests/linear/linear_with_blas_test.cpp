// oneDNN and OpenBLAS are registered, as the program does it: Linear's tests run over them too.
#include <gtest/gtest.h>

#include "fovea/linear.h"
#include "linear/blas/blas.h"

namespace fovea::linear {
namespace {

class Registered : public testing::Environment {
 public:
  void SetUp() override { register_host_libraries(blas::libraries()); }
};
const auto* const registered = testing::AddGlobalTestEnvironment(new Registered);

TEST(LinearWithBlas, ALibraryIsChosenForTheTypesItIsFasterFor) {
  const Explanation fp32 = explain(LinearProblem{});
  EXPECT_EQ(fp32.chosen, "cpu.onednn");
  const LinearProblem half{.dtype = DType::fp16, .result_dtype = DType::fp16, .parameter_dtype = DType::fp16};
  const Explanation fp16 = explain(half);
  EXPECT_EQ(fp16.chosen, "cpu.own");
  ASSERT_EQ(fp16.walk.front().name, "cpu.onednn");
  EXPECT_EQ(fp16.walk.front().reason, "has no fp16 product on CPUs");
}

TEST(LinearWithBlas, OpenBlasRunsWhenNamed) {
  EXPECT_EQ(explain(LinearProblem{}, "cpu.openblas").chosen, "cpu.openblas");
  EXPECT_EQ(explain(LinearProblem{}).walk.at(1).reason,
            "runs only when named: slower than oneDNN where it was measured");
}

}  // namespace
}  // namespace fovea::linear
