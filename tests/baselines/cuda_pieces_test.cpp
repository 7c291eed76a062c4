// Pieces of 16-bit problems cover every head once, in order, and the plan's largest is the largest.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "baselines/cuda/memory_plan.h"
#include "baselines/cuda/pieces.h"
#include "verification/attention/case.h"

namespace fovea::cuda::baselines {
namespace {

using fovea::baselines::Form;

constexpr std::int64_t kMost = std::int64_t{128} << 20;

AttentionProblem problem(const std::string& line) {
  return verification::attention_case(line + " d=64 device=cuda").problem;
}

std::int64_t score_bytes(const AttentionProblem& p) { return 4 * p.batch * p.heads_q * p.len_q * p.len_k; }

std::vector<Piece> all_pieces(Form form, const AttentionProblem& p) {
  std::vector<Piece> pieces;
  for (const StripPlan& strip : strip_plans(form, p))
    for (const Piece& piece : pieces_of(p, strip)) pieces.push_back(piece);
  return pieces;
}

void expect_cover(const std::string& line, std::size_t count) {
  SCOPED_TRACE(line);
  const AttentionProblem p = problem(line);
  const std::vector<Piece> pieces = all_pieces(Form::naive, p);
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
  EXPECT_EQ(4 * most_pairs(strip_plans(Form::naive, p)), largest);
}

// Every visible pair is in one product of rows and in one of columns, every row and key in one of each kind.
void expect_strips(const std::string& line, std::size_t count) {
  SCOPED_TRACE(line);
  const AttentionProblem p = problem(line);
  const std::vector<StripPlan> strips = strip_plans(Form::fused, p);
  EXPECT_EQ(strips.size(), count);
  std::int64_t query = 0, keys = 0, pairs = 0;
  for (const StripPlan& planned : strips) {
    const Strip& strip = planned.strip;
    EXPECT_EQ(strip.query, query);
    EXPECT_EQ(strip.keys_before, keys);
    EXPECT_GT(strip.keys, 0);
    if (query > 0) {
      EXPECT_LE(query - 1 + key_window(p).end, strip.keys_before);
    }
    query += strip.queries;
    keys = strip.keys;
    EXPECT_GE(keys, std::min(p.len_k, query - 1 + key_window(p).end));
    EXPECT_TRUE(keys % 128 == 0 || keys == p.len_k);
    for (const Piece& piece : pieces_of(p, planned)) {
      EXPECT_EQ(piece.window_end, key_window(p).end + piece.query);
      EXPECT_EQ(piece.row, (piece.batch * p.heads_q + piece.head_q) * p.len_q + strip.query);
      pairs += piece.problem.batch * piece.problem.heads_q * piece.problem.len_q * piece.problem.len_k;
    }
  }
  EXPECT_EQ(query, p.len_q);
  EXPECT_EQ(keys, p.len_k);
  EXPECT_GE(pairs, visible_pairs(p) * p.batch * p.heads_q);
  if (strips.size() > 1) {
    EXPECT_LT(pairs, p.batch * p.heads_q * p.len_q * p.len_k);
  }
}

TEST(CudaPieces, StripsEndAtTheEdgeOfTheMask) {
  expect_strips("b=4 hq=16 lq=2048 lk=2048 dtype=bf16 mask=causal", 8);
  expect_strips("b=4 hq=16 lq=512 lk=512 dtype=bf16 mask=causal", 1);
  expect_strips("b=4 hq=16 lq=512 lk=512 dtype=fp32 mask=causal", 1);
  expect_strips("b=4 hq=16 lq=1000 lk=999 dtype=fp16 mask=causal_bottom_right", 4);
  expect_strips("b=4 hq=16 lq=1000 lk=100 dtype=fp16 mask=causal_bottom_right", 1);
  expect_strips("b=4 hq=16 lq=700 lk=3000 dtype=bf16 mask=causal_top_left", 3);
  expect_strips("b=4 hq=16 lq=512 lk=2048 dtype=bf16 mask=causal_bottom_right", 1);
  expect_strips("b=1 hq=8 lq=16384 lk=16384 dtype=bf16 mask=causal", 8);
  expect_strips("b=4 hq=16 lq=2048 lk=2048 dtype=bf16", 1);
  expect_strips("b=4 hq=16 hkv=4 lq=2048 lk=2048 dtype=bf16 mask=causal", 1);
}

// Products of a strip that one pass takes: all its rows, each with the keys it sees.
void expect_products(Form form, const std::string& line, std::size_t count) {
  SCOPED_TRACE(line);
  const AttentionProblem p = problem(line);
  const StripPlan planned = strip_plans(form, p).front();
  const Strip& strip = planned.strip;
  const std::vector<Strip>& parts = planned.halves;
  EXPECT_EQ(parts.size(), count);
  std::int64_t query = strip.query;
  for (const Strip& part : parts) {
    EXPECT_EQ(part.query, query);
    query += part.queries;
    EXPECT_GE(part.keys, std::min(p.len_k, query - 1 + key_window(p).end));
    EXPECT_TRUE(part.keys % 128 == 0 || part.keys == p.len_k);
  }
  EXPECT_EQ(query, strip.query + strip.queries);
  EXPECT_EQ(parts.back().keys, strip.keys);
}

TEST(CudaPieces, ProductsOfASingleStripSkipAHiddenBlock) {
  expect_products(Form::fused, "b=4 hq=16 lq=512 lk=512 dtype=bf16 mask=causal", 2);
  expect_products(Form::fused, "b=4 hq=16 lq=512 lk=512 dtype=fp32 mask=causal", 2);
  expect_products(Form::fused, "b=4 hq=16 lq=700 lk=699 dtype=fp16 mask=causal_bottom_right", 2);
  expect_products(Form::fused, "b=1 hq=8 lq=512 lk=512 dtype=bf16 mask=causal", 1);
  expect_products(Form::fused, "b=4 hq=16 hkv=4 lq=512 lk=512 dtype=bf16 mask=causal", 1);
  expect_products(Form::fused, "b=4 hq=16 lq=512 lk=2048 dtype=bf16 mask=causal_bottom_right", 1);
  expect_products(Form::fused, "b=4 hq=16 lq=2048 lk=2048 dtype=bf16 mask=causal", 1);
  expect_products(Form::fused, "b=4 hq=16 lq=512 lk=512 dtype=bf16", 1);
  expect_products(Form::naive, "b=4 hq=16 lq=512 lk=512 dtype=bf16 mask=causal", 1);
}

TEST(CudaPieces, CoverEveryHeadOnce) {
  expect_cover("b=4 hq=16 lq=1024 lk=1024 dtype=bf16", 2);
  expect_cover("b=5 hq=16 lq=1024 lk=1024 dtype=fp16", 3);
  expect_cover("b=1 hq=16 lq=4096 lk=4096 dtype=bf16", 8);
  expect_cover("b=2 hq=7 lq=4096 lk=2048 dtype=bf16", 4);
  expect_cover("b=2 hq=16 hkv=4 lq=2048 lk=2048 dtype=bf16", 4);
  expect_cover("b=2 hq=16 hkv=2 lq=4096 lk=2400 dtype=bf16", 12);
  expect_cover("b=2 hq=3 hkv=1 lq=16384 lk=16384 dtype=bf16", 6);
  expect_cover("b=1 hq=1 lq=1 lk=1 dtype=bf16", 1);
}

TEST(CudaPieces, Fp32AndProblemsWithoutPairsAreOnePiece) {
  expect_cover("b=4 hq=16 lq=2048 lk=2048 dtype=fp32", 1);
  EXPECT_TRUE(all_pieces(Form::fused, problem("b=2 hq=4 lq=3 lk=0 dtype=bf16")).empty());
}

TEST(CudaPieces, PlansOfHugeProblemsCountNoPieces) {
  AttentionProblem p = problem("b=1 hq=64 lq=8192 lk=8192 dtype=bf16");
  p.batch = std::int64_t{1} << 24;
  EXPECT_GT(forward_layout(p, most_pairs(strip_plans(Form::fused, p))).bytes, 0);
}

// Two bytes a pair and a piece's scores, where the whole fp32 matrix stood.
TEST(CudaPieces, SixteenBitsHoldHalfTheMatrix) {
  const AttentionProblem p = problem("b=4 hq=16 lq=4096 lk=4096 dtype=bf16");
  const std::int64_t pairs = score_bytes(p) / 4;
  EXPECT_LT(forward_layout(p, most_pairs(strip_plans(Form::fused, p))).bytes, 2 * pairs + pairs / 2);
}

}  // namespace
}  // namespace fovea::cuda::baselines
