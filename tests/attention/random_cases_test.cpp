// A cut of `fovea verify`: the case list's first cases on every implementation.
#include "attention/engines.h"
#include "verification/attention/cases.h"
#include "verification/attention/operation.h"
#include "verification/differential.h"
#include "verification/problem_line.h"

namespace fovea {
namespace {

TEST(RandomCases, EveryImplementationAgreesWithTheReference) {
  const verification::Operation& attention = verification::attention_operation();
  for (std::uint64_t n = 0; n < verification::kCells; ++n) {
    verification::Case c = attention.random_case(20, n, {});
    c.variation = attention.variation_of(c);
    const verification::Trial trial = verification::trial_of(c);
    verification::Differential differential(c, trial);
    for (const verification::ImplementationFacts& implementation : attention.implementations()) {
      if (!implementation.unavailable.empty() || implementation.device != DeviceKind::cpu) continue;
      const bool bf16_only = implementation.name == "cpu.amx" || implementation.name == "cpu.avx512_bf16";
      if (bf16_only && c.dtype() != DType::bf16) continue;
      const verification::Outcome outcome = differential.run(implementation);
      EXPECT_EQ(outcome.kind, verification::Outcome::Kind::passed)
          << implementation.name << ": " << verification::line_of(c) << "\nwith " << text_of(c, trial) << "\n"
          << outcome.reason;
    }
  }
}

// A wrong answer must be caught, or the runs above show nothing.
TEST(RandomCases, AnAnswerThatDropsAKeyFails) {
  const verification::AttentionCase c = verification::attention_case("b=1 hq=2 lq=9 lk=30 d=16 seed=4");
  const auto tensors = verification::make_tensors(c);
  ForwardTensors fewer = tensors.forward();
  fewer.k.sizes[2] = fewer.v.sizes[2] = c.problem.len_k - 1;
  attention_forward(fewer, options_on("reference", c));
  EXPECT_FALSE(verification::check_forward(c.problem, tensors.forward(), 1).ok);
}

}  // namespace
}  // namespace fovea
