// The engine against the reference, on every instruction set of this machine: shapes around every tile edge, all
// masks, grouped heads, hostile data and placements.
#include "engine.h"

#include <gtest/gtest.h>

#include <optional>

namespace fovea::cpu {
namespace {

using verification::AttentionCase;
using verification::CaseTensors;

void check(const AttentionCase& c, DType result) {
  const CaseTensors inputs = verification::make_tensors(c, result);
  std::optional<verification::Expectation> forward;  // the same for all; that of backward depends on out and lse
  for (const std::string& name : available(c.problem)) {
    const std::string at = name + ": " + verification::line_of(c);
    const CaseTensors tensors = verification::make_tensors(c, result);
    AttentionProblem problem = c.problem;
    problem.result_dtype = result;
    attention_forward(tensors.forward(), forced(c, name));
    if (!forward) forward = verification::expect_forward(problem, inputs.forward(), 1);
    const auto verdict = verification::compare(*forward, tensors.forward());
    EXPECT_TRUE(verdict.ok) << at << "\n" << verdict.reason();
    attention_backward(tensors.backward(), forced(c, name));
    problem.pass = Pass::backward;
    const auto backward = verification::check_backward(problem, tensors.backward(), 1);
    EXPECT_TRUE(backward.ok) << at << "\n" << backward.reason();
    EXPECT_TRUE(tensors.padding_intact()) << at;
  }
}

void sweep(const std::string& line) {
  for (const AttentionCase& c : verification::attention_sweep("pass=e2e " + line)) check(c, c.problem.dtype);
}

TEST(Engine, LengthsAroundEveryTile) {
  sweep(
      "b=1 hq=1 lq=1,7,8,16,23,24,25,47,48,49,97 lk=0,1,3,4,8,95,96,97,192,193,385 d=16 seed=1 "
      "mask=none,causal_bottom_right");
}

// Few enough to be run with every sanitizer.
TEST(Engine, RaggedTiles) { sweep("b=1 hq=1 lq=1,8,25 lk=1,4,97 d=17 seed=1 mask=none,causal_bottom_right"); }

TEST(Engine, LongerThanFourBlocks) {
  sweep("b=1 hq=2 hkv=1 lq=400,531 lk=400,531 d=32 dv=24 mask=none,causal_top_left,causal_bottom_right seed=2");
  sweep("b=1 hq=2 hkv=1 lq=70 lk=800 d=32 dtype=bf16 mask=none,causal_bottom_right seed=20");
}

// Bounds around blocks of keys and tiles of queries.
TEST(Engine, Windows) {
  sweep("b=1 hq=2 hkv=1 lq=211 d=17 dtype=fp32,bf16 mask=window left=0,24,96,97 right=0,96 seed=6");
  sweep(
      "b=1 hq=3 hkv=1 lq=60,300 lk=300,60 d=24 dtype=fp32,bf16 mask=window_top_left,window_bottom_right "
      "left=5,unlimited right=2,33 seed=7");
  sweep("b=1 hq=1 lq=1300 d=8 dtype=fp32,bf16 mask=window left=100 right=0 seed=11");  // two chunks of keys
  // Several tiles of queries in a task.
  sweep("b=8 hq=4 lq=130 d=40 dtype=fp32,bf16 mask=window left=33 right=0 seed=23");
}

TEST(Engine, HeadDimensions) {
  sweep("b=1 hq=1 lq=30 lk=100 d=1,2,3,5,8,15,17,64,80,127,192,256,512 dv=1,4,7,33,128,512 seed=3");
}

TEST(Engine, GroupedHeads) {
  sweep("b=2 hq=6 hkv=1,2,3,6 lq=1,5,40 lk=101 d=16 mask=none,causal_bottom_right,causal_top_left seed=4");
}

TEST(Engine, EveryFamilyOfData) {
  sweep(
      "b=2 hq=4 hkv=2 lq=31 lk=113 d=24 mask=none,causal_bottom_right,causal_top_left dtype=fp32,bf16,fp16 "
      "data=normal,peaked,integers,ramps,constant,outliers,denormal,large,ones,onehot,nonfinite,sink seed=5");
}

TEST(Engine, EveryPlacement) {
  sweep(
      "b=2 hq=4 hkv=2 lq=37 lk=99 d=20 dv=36 layout=bhld,blhd dtype=fp32,bf16,fp16 "
      "place=contiguous,strided,broadcast,guarded,guarded_front seed=8");
}

TEST(Engine, Scales) {
  sweep(
      "b=1 hq=2 lq=50 lk=120 d=16 scale=0,1,-0.3,1e-30,-4,1e-38 mask=none,causal_bottom_right dtype=fp32,bf16 seed=9");
}

// Up to twelve rows of queries have keys in the lanes, more have queries there. 1153 keys are three chunks.
TEST(Engine, FewQueries) {
  sweep("b=1 hq=4 hkv=1,4 lq=1,4 lk=97 d=16 dv=40 dtype=fp32,bf16,fp16 seed=12");
  sweep("b=1 hq=1 lq=2,16 lk=1153 d=8 dtype=fp32,bf16 seed=12");
}

// Rows are divided into bundles of 1 to 16; one or two rows have wider tiles of the output.
TEST(Engine, EveryNumberOfFewQueries) {
  sweep("b=1 hq=1 lq=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 lk=101 d=32 dv=80 dtype=fp32,bf16,fp16 seed=17");
  sweep("b=1 hq=1 lq=1,2,3 lk=33 d=64 dv=144 dtype=fp32,bf16,fp16 mask=causal_bottom_right seed=18");
}

TEST(Engine, LongKeysOfFewQueries) {
  sweep("b=1 hq=3 hkv=1 lq=1,5 lk=1151,1152 d=64 dv=48 dtype=fp32,bf16,fp16 layout=blhd seed=13");
  sweep(
      "b=1 hq=2 hkv=1 lq=3,8 lk=1300 d=17 mask=window_top_left,window_bottom_right left=700 right=2 dtype=fp32,bf16 "
      "seed=14");
  sweep("b=2 hq=2 hkv=1 lq=2,7 lk=1100 d=20 dv=36 dtype=bf16 place=strided,broadcast,guarded,guarded_front seed=15");
  sweep("b=1 hq=2 hkv=1 lq=3,7 lk=1200 d=24 mask=causal_bottom_right data=peaked,nonfinite seed=16");
}

// Tiles of 16 rows and 32 values. 600 query rows are several slabs, 1100 keys two chunks.
TEST(Engine, TileRegisters) {
  sweep(
      "b=1 hq=1 lq=17,32,33,65 lk=1,31,32,33,96,97,191,192,193,385 d=16 dtype=bf16 mask=none,causal_bottom_right "
      "seed=17");
  sweep("b=1 hq=2 hkv=1 lq=300 lk=330 d=15,32,33,80 dv=33 dtype=bf16 mask=causal_top_left seed=18");
  sweep("b=1 hq=1 lq=40 lk=1100 d=48 dv=16 dtype=bf16 data=peaked seed=19");
}

TEST(Engine, EmptyProblems) { sweep("b=0,1 hq=2 lq=0,3 lk=0,5 d=8 mask=none,causal_top_left seed=10"); }

}  // namespace
}  // namespace fovea::cpu
