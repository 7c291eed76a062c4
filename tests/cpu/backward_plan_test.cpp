// Into how many chunks backward splits the keys of a sequence: the shape alone decides, never the threads.
#include "cpu/backward.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cpu/kernels/kernels.h"

namespace fovea::cpu {
namespace {

// Of each of `sequences` sequences with `len_k` keys.
std::int64_t chunks_of(std::int64_t sequences, std::int64_t len_k) {
  AttentionProblem p;
  p.pass = Pass::backward;
  p.batch = sequences, p.heads_q = p.heads_kv = 1, p.len_q = 64, p.len_k = len_k, p.dim_qk = p.dim_v = 64;
  return BackwardPlan(kScalarKernels, p).chunks();
}

using Chunks = std::vector<std::pair<std::int64_t, std::int64_t>>;  // by the number of keys

// Chunks of 256 keys, at most 16. Up to 1,024 keys, chunks of 128, at most four.
TEST(BackwardPlan, ChunksOfOneSequence) {
  for (const auto& [keys, chunks] : Chunks{{1, 1},    {128, 1},  {255, 1},  {256, 2},  {300, 2},  {383, 2},  {384, 3},
                                          {512, 4},  {1023, 4}, {1279, 4}, {1280, 5}, {3839, 14}, {65536, 16}})
    EXPECT_EQ(chunks_of(1, keys), chunks) << keys;
}

// Chunks of 512 keys, as many as give 16 tasks.
TEST(BackwardPlan, ChunksOfSeveralSequences) {
  for (const auto& [keys, chunks] : Chunks{{511, 1}, {1023, 1}, {1024, 2}, {4095, 7}, {4096, 8}, {65536, 8}})
    EXPECT_EQ(chunks_of(2, keys), chunks) << keys;
  EXPECT_EQ(chunks_of(3, 65536), 6);
  EXPECT_EQ(chunks_of(15, 65536), 2);
  EXPECT_EQ(chunks_of(16, 65536), 1);
}

}  // namespace
}  // namespace fovea::cpu
