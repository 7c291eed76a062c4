// Layers whose attention is named: the forms that store the score matrix, with and without state of their own.
#include <gtest/gtest.h>

#include "baselines/baselines.h"
#include "expected_layer.h"

namespace fovea::layers {
namespace {

void register_once() {
  static const bool done = (attention::register_implementations(baselines::implementations()), true);
  (void)done;
}

void expect_state_is_saved(const Shape& shape, const char* name) {
  LayerProblem problem = problem_of(shape);
  problem.reproducible = false, problem.saves = true;
  LayerCall call(shape), inferring(shape);
  CallerMemory saved(saved_bytes(problem, name));
  const std::int64_t probabilities = shape.batch * shape.heads_q * shape.len_q * shape.len_k * size_of(shape.dtype);
  EXPECT_GE(saved.buffer().bytes, call.saved.buffer().bytes + probabilities);
  EXPECT_EQ(explain(problem, name).saved.back().name, "attention_state");
  call.forward.saved = call.backward.saved = saved.buffer();
  inferring.forward.saved = {};
  for (LayerCall* const one : {&call, &inferring}) one->options.attention = name, one->options.reproducible = false;
  call.run(), inferring.run_forward();
  EXPECT_EQ(fault_of(call), "");
  EXPECT_TRUE(saved.guards_hold());
  EXPECT_EQ(inferring.values("y"), call.values("y"));
}

TEST(NamedAttention, StoredProbabilitiesAreSavedWithTheLayer) {
  register_once();
  int runs = 0;
  for (Shape shape : shapes()) {
    if (shape.mask.left != Mask::kUnlimited) continue;  // these forms take masks that hide no early key
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      for (const char* const name : {"naive", "fused"}) {
        shape.dtype = shape.result = dtype;
        SCOPED_TRACE(std::string(name) + " " + std::string(to_string(shape.kind)));
        expect_state_is_saved(shape, name);
        ++runs;
      }
    }
  }
  EXPECT_EQ(runs, 64);
}

TEST(NamedAttention, StateOfAnotherProblemIsRefusedBeforeAnythingIsWritten) {
  register_once();
  LayerProblem problem = problem_of({});
  problem.reproducible = false;
  LayerCall call({});
  CallerMemory saved(saved_bytes(problem, "naive"));
  call.backward.saved = saved.buffer();
  call.options.attention = "naive", call.options.reproducible = false;
  EXPECT_THROW(call.run_backward(), Error);
  for (const auto& [name, values] : call.results())
    for (const float value : values) EXPECT_TRUE(std::isnan(value)) << name;
}

TEST(NamedAttention, WhatIsNotReproducibleIsRefusedUnlessItIsAskedFor) {
  register_once();
  LayerCall call({});
  call.options.attention = "naive";
  try {
    call.run_forward();
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::unsupported);
    EXPECT_EQ(error.details().call, "layer_forward");
    EXPECT_NE(std::string(error.what()).find("reproducible=false"), std::string::npos) << error.what();
  }
}

// The engine stores nothing, so its name changes no size.
TEST(NamedAttention, AnEngineByNameSavesNoMore) {
  const LayerProblem problem = problem_of({});
  EXPECT_EQ(saved_bytes(problem, "cpu.scalar"), saved_bytes(problem));
  EXPECT_THROW(saved_bytes(problem, "cpu.nothing"), Error);
}

}  // namespace
}  // namespace fovea::layers
