// The CUDA baselines' plan of memory counts what PyTorch-like code holds.
#include <gtest/gtest.h>

#include "baselines/cuda/baselines.h"
#include "baselines/cuda/memory_plan.h"
#include "baselines/cuda/pieces.h"
#include "verification/attention/case.h"

namespace fovea::cuda::baselines {
namespace {

using fovea::baselines::Form;

AttentionProblem problem(const std::string& line, Pass pass, bool saved) {
  AttentionProblem p = verification::attention_case(line).problem;
  p.pass = pass;
  p.saved_state = saved;
  return p;
}

std::int64_t pairs_of_piece(const AttentionProblem& p) { return most_pairs(strip_plans(Form::fused, p)); }

TEST(CudaBaselineMemory, SixteenBitMatricesAndTheScoresOfAPiece) {
  const std::string line = "b=2 hq=4 lq=4096 lk=4096 d=16 dtype=bf16";
  const double pairs = 2.0 * 4 * 4096 * 4096;
  const auto bytes = [&](Pass pass, bool saved) {
    const AttentionProblem p = problem(line, pass, saved);
    return static_cast<double>(pass == Pass::forward ? forward_layout(p, pairs_of_piece(p)).bytes
                                                     : backward_layout(p, pairs_of_piece(p)).bytes);
  };
  const double small = 48e6;                   // tensors, statistics, the library's own
  const double piece = 2 * 4.0 * 4096 * 4096;  // two heads
  EXPECT_NEAR(bytes(Pass::forward, false), 2 * pairs + piece, small);
  EXPECT_NEAR(bytes(Pass::forward, true), piece, small);
  EXPECT_NEAR(bytes(Pass::backward, false), 4 * pairs + piece, small);
  EXPECT_NEAR(bytes(Pass::backward, true), 2 * pairs + piece, small);
}

// cuBLASLt counts products in 32 bits.
TEST(CudaBaselinePlan, BatchesThatAreTooLargeAreRefused) {
  for (const attention::Implementation& one : implementations()) {
    const auto refusal_of = [&one](const std::string& line) {
      return one.prepare(problem(line, Pass::backward, false), one.variant).refusal;
    };
    EXPECT_EQ(refusal_of("b=1048576 hq=2048 lq=1 lk=1 d=1"), "batch x heads = 1048576 x 2048, takes up to 2147483647");
    EXPECT_EQ(refusal_of("b=1048575 hq=2048 lq=1 lk=1 d=1"), "");
  }
}

TEST(CudaBaselineMemory, Fp32ScoresBecomeTheSavedProbabilities) {
  const AttentionProblem p = problem("lq=1024 lk=1024 d=16", Pass::forward, true);
  EXPECT_EQ(forward_layout(p, pairs_of_piece(p)).scores.in(nullptr), nullptr);
}

TEST(CudaBaselineMemory, PiecesAreAlignedWhereverTheWorkspaceBegins) {
  AttentionProblem p = problem("b=1 hq=3 hkv=1 lq=33 lk=17 d=5 dv=3 dtype=fp16", Pass::backward, false);
  for (const std::uintptr_t base : {std::uintptr_t{0x10000}, std::uintptr_t{0x10001}, std::uintptr_t{0x100fe}}) {
    void* const workspace = reinterpret_cast<void*>(base);
    const BackwardLayout layout = backward_layout(p, pairs_of_piece(p));
    for (const Array& array : {layout.q, layout.k, layout.v, layout.dout, layout.dk, layout.dv, layout.delta,
                               layout.probabilities, layout.gradients, layout.scores, layout.products}) {
      const auto address = reinterpret_cast<std::uintptr_t>(array.in(workspace));
      EXPECT_EQ(address % 256, 0u);
      EXPECT_GE(address, base);
    }
    const auto end = reinterpret_cast<std::uintptr_t>(layout.products.in(workspace)) +
                     static_cast<std::uintptr_t>(layout.products.bytes);
    EXPECT_LE(end, base + static_cast<std::uintptr_t>(layout.bytes));
  }
}

}  // namespace
}  // namespace fovea::cuda::baselines
