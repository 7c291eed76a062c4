// Pieces of 16-bit problems cover every head once, in order, and the plan's largest is the largest.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "baselines/cuda/memory_plan.h"
#include "baselines/cuda/pieces.h"
#include "core/problem_line.h"

namespace fovea::cuda::baselines {
namespace {

constexpr std::int64_t kMost = std::int64_t{32} << 20;

AttentionProblem problem(const std::string& line) { return core::parse_case(line + " d=64 device=cuda").problem; }

std::int64_t score_bytes(const AttentionProblem& p) { return 4 * p.batch * p.heads_q * p.len_q * p.len_k; }

void expect_cover(const std::string& line, std::size_t count) {
  SCOPED_TRACE(line);
  const AttentionProblem p = problem(line);
  const std::vector<Piece> pieces = pieces_of(p);
  EXPECT_EQ(pieces.size(), count);
  std::int64_t row = 0, largest = 0;
  for (const Piece& piece : pieces) {
    EXPECT_EQ(piece.row, row);
    EXPECT_EQ(piece.row, (piece.batch * p.heads_q + piece.head_q) * p.len_q);
    EXPECT_EQ(piece.head_kv, piece.head_q / (p.heads_q / p.heads_kv));
    EXPECT_TRUE(piece.problem.heads_kv == 1 ||
                piece.problem.heads_q * p.heads_kv == piece.problem.heads_kv * p.heads_q);
    EXPECT_TRUE(piece.problem.batch == 1 || piece.problem.heads_q == p.heads_q);
    EXPECT_TRUE(p.dtype == DType::fp32 || score_bytes(piece.problem) <= kMost ||
                piece.problem.batch * piece.problem.heads_q == 1);
    row += piece.problem.batch * piece.problem.heads_q * p.len_q;
    largest = std::max(largest, score_bytes(piece.problem));
  }
  EXPECT_EQ(row, p.batch * p.heads_q * p.len_q);
  EXPECT_EQ(score_bytes(largest_piece(p)), largest);
}

TEST(CudaPieces, CoverEveryHeadOnce) {
  expect_cover("b=4 hq=16 lq=512 lk=512 dtype=bf16", 2);
  expect_cover("b=5 hq=16 lq=512 lk=512 dtype=fp16", 3);
  expect_cover("b=1 hq=16 lq=2048 lk=2048 dtype=bf16", 8);
  expect_cover("b=2 hq=7 lq=2048 lk=1024 dtype=bf16", 4);
  expect_cover("b=2 hq=16 hkv=4 lq=1024 lk=1024 dtype=bf16", 4);
  expect_cover("b=2 hq=16 hkv=2 lq=2048 lk=1200 dtype=bf16", 12);
  expect_cover("b=2 hq=3 hkv=1 lq=8192 lk=8192 dtype=bf16", 6);
  expect_cover("b=1 hq=1 lq=1 lk=1 dtype=bf16", 1);
}

TEST(CudaPieces, Fp32AndProblemsWithoutPairsAreNotCut) {
  expect_cover("b=4 hq=16 lq=2048 lk=2048 dtype=fp32", 1);
  EXPECT_TRUE(pieces_of(problem("b=2 hq=4 lq=3 lk=0 dtype=bf16")).empty());
}

TEST(CudaPieces, PlansOfHugeProblemsCountNoPieces) {
  AttentionProblem p = problem("b=1 hq=64 lq=8192 lk=8192 dtype=bf16");
  p.batch = std::int64_t{1} << 24;
  EXPECT_GT(forward_memory(p, nullptr).bytes, 0);
}

// Two bytes a pair and a piece's scores, where the whole fp32 matrix stood.
TEST(CudaPieces, SixteenBitsHoldHalfTheMatrix) {
  const AttentionProblem p = problem("b=4 hq=16 lq=2048 lk=2048 dtype=bf16");
  const std::int64_t pairs = score_bytes(p) / 4;
  EXPECT_LT(forward_memory(p, nullptr).bytes, 2 * pairs + pairs / 2);
}

}  // namespace
}  // namespace fovea::cuda::baselines
