// Linear as an operation: its line, what its plan tells, and random cases of every implementation.
#include "verification/linear/operation.h"

#include <gtest/gtest.h>

#include "fovea/error.h"
#include "verification/differential.h"
#include "verification/problem_line.h"

namespace fovea::verification {
namespace {

[[maybe_unused]] const bool kRegistered = (register_operation(linear_operation()), true);

TEST(LinearOperation, LinesArePrintedInFull) {
  const Case c = parse_case("op=linear m=4 k=6 n=8 h=2 dtype=bf16");
  EXPECT_EQ(line_of(c),
            "op=linear pass=fwd b=1 m=4 k=6 n=8 h=2 dtype=bf16 bias=no layout=blhd device=cpu data=normal "
            "place=contiguous seed=0");
}

TEST(LinearOperation, LinesWithGradientsSayWhetherTheyAccumulate) {
  const Case plain = parse_case("op=linear pass=bwd m=4 k=6 n=8 dtype=bf16");
  EXPECT_NE(line_of(plain).find("bias=no accumulate=no layout=blhd"), std::string::npos) << line_of(plain);
  const Case added = parse_case("op=linear pass=bwd m=4 k=6 n=8 dtype=bf16 accumulate=yes");
  EXPECT_TRUE(linear_operation().accumulates(added));
  EXPECT_EQ(parse_case(line_of(added)), added);
  EXPECT_GT(linear_operation().cost(added).bytes, linear_operation().cost(plain).bytes);
  for (const TensorSpec& one : linear_operation().tensors(added))
    EXPECT_EQ(one.dtype, one.role == Role::gradient ? DType::fp32 : DType::bf16) << one.name;
  const Case forward = with_word(added, "pass", "fwd");
  EXPECT_EQ(line_of(forward).find("accumulate"), std::string::npos) << line_of(forward);
  EXPECT_FALSE(linear_operation().accumulates(forward));
  try {
    parse_case("op=linear m=4 accumulate=yes");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("accumulate"), std::string::npos) << error.what();
  }
}

TEST(LinearOperation, HeadsThatDoNotDivideAreRefused) {
  try {
    parse_case("op=linear m=4 k=6 n=8 h=3");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("n must be a multiple of h"), std::string::npos) << error.what();
  }
}

TEST(LinearOperation, CostCountsTheProducts) {
  EXPECT_EQ(linear_operation().cost(parse_case("op=linear m=4 k=6 n=8")).flops, 2.0 * 4 * 6 * 8);
  EXPECT_EQ(linear_operation().cost(parse_case("op=linear pass=e2e m=4 k=6 n=8")).flops, 3 * 2.0 * 4 * 6 * 8);
}

TEST(LinearOperation, RandomCasesAreRight) {
  int passed = 0;
  for (std::uint64_t n = 0; n < 150; ++n) {
    Case c = linear_operation().random_case(11, n, {});
    c.variation = linear_operation().variation_of(c);
    Differential differential(c, trial_of(c));
    for (const ImplementationFacts& one : linear_operation().implementations()) {
      if (one.device != DeviceKind::cpu) continue;
      const Outcome outcome = differential.run(one);
      EXPECT_NE(outcome.kind, Outcome::Kind::failed) << one.name << " on " << line_of(c) << "\n" << outcome.reason;
      passed += outcome.kind == Outcome::Kind::passed ? 1 : 0;
    }
  }
  EXPECT_GE(passed, 150);
}

}  // namespace
}  // namespace fovea::verification
