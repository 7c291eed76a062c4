// The scratch memory that kernels ask for: whole cache lines, and packing writes nothing behind it.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cpu/call.h"
#include "engine.h"

namespace fovea::cpu {
namespace {

constexpr std::int64_t kLine = 64;  // bytes

TEST(Scratch, IsInWholeCacheLines) {
  for (const Kernels* kernels : all_kernels()) {
    for (const char* line : {"lq=1 lk=1 d=1", "lq=50 lk=300 d=17 dv=40 dtype=bf16"}) {
      const Shape shape = shape_of(verification::attention_case(line).problem);
      for (const bool packs_itself : {false, true})
        EXPECT_EQ(kernels->forward_scratch_bytes(shape, shape.len_q, packs_itself) % kLine, 0) << kernels->lanes;
      for (const bool own : {true, false})
        EXPECT_EQ(kernels->backward_scratch_bytes(shape, shape.len_k, own, own) % kLine, 0) << kernels->lanes;
      EXPECT_EQ(kernels->backward_tile_bytes(shape) % kLine, 0) << kernels->lanes;
      EXPECT_EQ(kernels->dq_tile_floats(shape) * 4 % kLine, 0) << kernels->lanes;
      EXPECT_EQ(kernels->few_scratch_bytes(shape) % kLine, 0) << kernels->lanes;
      EXPECT_EQ(kernels->few_partial_bytes(shape) % kLine, 0) << kernels->lanes;
    }
  }
}

// Whole and ragged blocks of keys.
TEST(Scratch, PackingWritesNothingBehindABlock) {
  for (const char* line : {"lk=96 d=16", "lk=96 d=17 dv=5", "lk=70 d=3 dv=40"}) {
    const verification::AttentionCase c = verification::attention_case("b=1 hq=1 dtype=bf16 " + std::string(line));
    const verification::CaseTensors tensors = verification::make_tensors(c);
    const Shape shape = shape_of(c.problem);
    for (const Kernels* kernels : all_kernels()) {
      constexpr char kGuard = 7;
      constexpr std::ptrdiff_t kBehind = 256;
      const std::ptrdiff_t k_bytes = kernels->packed_k_bytes(shape), v_bytes = kernels->packed_v_bytes(shape);
      std::vector<char> k(static_cast<std::size_t>(k_bytes + kBehind), kGuard),
          v(static_cast<std::size_t>(v_bytes + kBehind), kGuard);
      PackTask task{};
      task.shape = &shape;
      task.k = key_rows(sequences_of(c.problem), tensors.forward().k, 0);
      task.v = key_rows(sequences_of(c.problem), tensors.forward().v, 0);
      task.packed_k = k.data(), task.packed_v = v.data();
      kernels->pack(task);
      EXPECT_EQ(std::count(k.begin() + k_bytes, k.end(), kGuard), kBehind) << kernels->lanes << " lanes, " << line;
      EXPECT_EQ(std::count(v.begin() + v_bytes, v.end(), kGuard), kBehind) << kernels->lanes << " lanes, " << line;
    }
  }
}

}  // namespace
}  // namespace fovea::cpu
