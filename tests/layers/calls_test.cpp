// Calls of layers: threads, memory of the caller, plans, subsets of gradients, sizes of zero, explanations.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "core/memory.h"
#include "layer_call.h"
#include "layers/implementation.h"

namespace fovea::layers {
namespace {

Shape large(LayerKind kind, DType dtype) {
  Shape shape{.kind = kind,
              .len_q = 150,
              .len_k = 150,
              .width = 96,
              .width_kv = 96,
              .dim_qk = 24,
              .dim_v = 24,
              .dtype = dtype,
              .result = dtype,
              .mask = Mask::causal};
  if (kind == LayerKind::gqa) shape.heads_kv = 2;
  if (kind == LayerKind::mqa) shape.heads_kv = 1;
  if (kind == LayerKind::mla) shape.latent_q = 40, shape.latent_kv = 24;
  return shape;
}

constexpr LayerKind kKinds[] = {LayerKind::mha_fused, LayerKind::mha, LayerKind::gqa, LayerKind::mqa, LayerKind::mla};

TEST(LayerCalls, AnyNumberOfThreadsGivesTheSameBits) {
  for (const LayerKind kind : kKinds) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      LayerCall first(large(kind, dtype));
      first.options.threads = 1;
      first.run();
      for (int threads = 2; threads <= 8; ++threads) {
        LayerCall call(large(kind, dtype));
        call.options.threads = threads;
        call.run();
        EXPECT_EQ(call.results(), first.results()) << to_string(kind) << ", " << threads << " threads";
      }
    }
  }
}

TEST(LayerCalls, AnExternalThreadPoolGivesTheSameBits) {
  const ExternalThreadPool thread_pool{
      3, nullptr, [](void*, std::int64_t count, void (*task)(void*, std::int64_t, int), void* argument) {
        for (std::int64_t i = count; i-- > 0;) task(argument, i, 0);
      }};
  for (const LayerKind kind : kKinds) {
    LayerCall own(large(kind, DType::bf16)), pooled(large(kind, DType::bf16));
    pooled.options.thread_pool = &thread_pool;
    own.run(), pooled.run();
    EXPECT_EQ(own.results(), pooled.results()) << to_string(kind);
  }
}

TEST(LayerCalls, ARaisedFlagCancels) {
  for (const LayerKind kind : kKinds) {
    LayerCall call(large(kind, DType::bf16));
    call.run_forward();
    const std::atomic<bool> raised = true;
    call.options.cancel = &raised;
    for (const auto run : {&LayerCall::run_forward, &LayerCall::run_backward}) {
      try {
        (call.*run)();
        FAIL() << "not cancelled";
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::cancelled);
      }
    }
  }
}

TEST(LayerCalls, InferenceGivesTheSameBitsWithoutSavedState) {
  for (const Shape& shape : shapes()) {
    LayerCall saving(shape), inferring(shape);
    inferring.forward.saved = {};
    saving.run_forward(), inferring.run_forward();
    EXPECT_EQ(saving.values("y"), inferring.values("y")) << to_string(shape.kind);
    const LayerExplanation told = explain(describe(inferring.forward, inferring.options));
    EXPECT_EQ(told.saved_bytes, 0);
    EXPECT_TRUE(told.saved.empty());
  }
}

TEST(LayerCalls, TheCallersMemoryIsEnoughAndItsContentsDoNotMatter) {
  for (const Shape& base : shapes()) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      Shape shape = base;
      shape.dtype = shape.result = dtype;
      LayerCall expected(shape), call(shape);
      expected.run();
      CallerMemory forward(workspace_bytes(describe(call.forward, call.options))),
          backward(workspace_bytes(describe(call.backward, call.options)));
      call.options.threads = 8;
      call.options.workspace = forward.buffer();
      call.run_forward();
      call.options.workspace = backward.buffer();
      call.run_backward();
      EXPECT_TRUE(forward.guards_hold() && backward.guards_hold() && call.saved.guards_hold());
      EXPECT_EQ(call.results(), expected.results()) << to_string(shape.kind);
    }
  }
}

TEST(LayerCalls, WithoutWorkspaceOnlyTheLibrarysPoolIsUsed) {
  LayerCall call(large(LayerKind::mla, DType::bf16));
  call.run();
  core::reset_memory_peak();
  call.run_backward();
  EXPECT_GE(core::memory_count().peak, workspace_bytes(describe(call.backward, call.options)));
  EXPECT_EQ(core::memory_count().current, 0);
}

// Each gradient alone, and all but each.
TEST(LayerCalls, EverySubsetOfGradientsHasTheSameBits) {
  for (Shape shape : shapes()) {
    shape.dtype = shape.result = DType::bf16;
    const LayerCall all(shape);
    all.run();
    const auto expected = all.results();
    for (const bool alone : {true, false}) {
      for (const auto& [chosen, values] : expected) {
        if (chosen == "y") continue;
        LayerCall some(shape);
        some.run_forward();
        const auto leave_out = [&](const std::string& name, MutableTensorView& view) {
          if ((name == chosen) != alone) view = {};
        };
        leave_out("dx", some.backward.dx), leave_out("dx_kv", some.backward.dx_kv);
        for (const Slot slot : kAllSlots) {
          const std::string name = "d" + std::string(name_of(slot));
          leave_out(name, layers::at(some.backward.gradients, slot).weight);
          leave_out(name + ".bias", layers::at(some.backward.gradients, slot).bias);
        }
        for (const Norm norm : kAllNorms)
          leave_out("d" + std::string(name_of(norm)) + ".norm", layers::at(some.backward.norm_gradients, norm));
        some.run_backward();
        for (const auto& [name, now] : some.results()) {
          if (name == "y") continue;
          if ((name == chosen) == alone) {
            EXPECT_EQ(now, expected.at(name)) << to_string(shape.kind) << " " << name << " for " << chosen;
          } else {
            EXPECT_TRUE(std::ranges::all_of(now, [](float value) { return std::isnan(value); })) << name;
          }
        }
      }
    }
  }
}

TEST(LayerCalls, LessWorkIsCountedWhereNoGradientNeedsIt) {
  LayerCall call(large(LayerKind::mla, DType::fp32));
  const double all = flops(describe(call.backward, call.options));
  call.backward.dx = {};
  call.backward.gradients = {.out = call.backward.gradients.out};
  const LayerProblem out_only = describe(call.backward, call.options);
  EXPECT_EQ(flops(out_only), 2.0 * 2 * 150 * 96 * 96);
  EXPECT_GT(all, 5 * flops(out_only));
  const LayerExplanation told = explain(out_only);
  ASSERT_EQ(told.parts.size(), 1u);
  EXPECT_EQ(told.parts[0].name, "out");
  EXPECT_EQ(told.attention, "");
}

TEST(LayerCalls, AccumulatingAddsToParametersGradients) {
  for (Shape shape : shapes()) {
    shape.dtype = DType::bf16;
    const LayerCall once(shape);
    LayerCall twice(shape);
    once.run(), twice.run();
    twice.backward.accumulate = true;
    twice.run_backward();
    const auto plain = once.results(), added = twice.results();
    for (const auto& [name, values] : plain) {
      const float factor = name == "y" || name == "dx" || name == "dx_kv" ? 1.0f : 2.0f;
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(added.at(name)[i], factor * values[i], 1e-4f * std::max(1.0f, std::abs(values[i])))
            << to_string(shape.kind) << " " << name;
    }
  }
}

TEST(LayerCalls, BroadcastAndOverlappingRowsAreTakenThroughACopy) {
  for (const LayerKind kind : {LayerKind::mha_fused, LayerKind::mha, LayerKind::mla}) {
    LayerCall call(large(kind, DType::fp32)), expected(large(kind, DType::fp32));
    for (const char* name : {"x", "dy"}) {
      TestTensor& dense = expected.tensor(name);
      const std::int64_t width = 96;
      for (std::int64_t i = 0; i < 2 * 150 * width; ++i) dense.set(i, dense.at(i % width));
    }
    for (TensorView* const view : {&call.forward.x, &call.backward.x, &call.backward.dy})
      view->strides[0] = view->strides[2] = 0;
    EXPECT_TRUE(describe(call.forward, call.options).copies_x);
    EXPECT_TRUE(describe(call.backward, call.options).copies_dy);
    call.run(), expected.run();
    EXPECT_EQ(call.results(), expected.results()) << to_string(kind);
  }
}

TEST(LayerCalls, SizesOfZeroWriteWhatAnEmptySumIs) {
  for (const auto& [batch, len_q, len_k] : {std::array<std::int64_t, 3>{0, 5, 5}, {2, 0, 5}, {2, 5, 0}, {2, 0, 0}}) {
    for (const LayerKind kind : {LayerKind::mha, LayerKind::mla}) {
      Shape shape{.kind = kind, .batch = batch, .len_q = len_q, .len_k = len_k, .cross = true};
      if (kind == LayerKind::mla) shape.latent_q = shape.latent_kv = 6;
      const LayerCall call(shape);
      call.run();
      const auto results = call.results();
      const std::vector<float> bias = call.values("out.bias"), y = results.at("y");
      const bool no_keys = batch * len_k == 0, no_queries = batch * len_q == 0;
      for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i % bias.size()]);
      for (const auto& [name, values] : results) {
        if (name == "y" || name == "dout.bias") continue;
        EXPECT_TRUE(no_keys || no_queries);
        for (const float value : values) EXPECT_EQ(value, 0.0f) << name;
      }
      for (const float value : results.at("dout.bias")) EXPECT_EQ(value == 0.0f, no_queries);
    }
  }
}

TEST(LayerCalls, APlanIsKeptByTheCaller) {
  for (const LayerKind kind : kKinds) {
    LayerCall call(large(kind, DType::bf16)), expected(large(kind, DType::bf16));
    expected.run();
    const fovea::Plan forward = prepare(describe(call.forward, call.options)),
                      backward = prepare(describe(call.backward, call.options));
    EXPECT_EQ(forward.implementation(), "composed");
    EXPECT_EQ(forward.saved_bytes(), saved_bytes(describe(call.forward, call.options)));
    EXPECT_EQ(backward.saved_bytes(), forward.saved_bytes());
    call.options.plan = &forward;
    call.run_forward();
    EXPECT_THROW(call.run_backward(), Error);
    call.options.plan = &backward;
    call.run_backward();
    EXPECT_EQ(call.results(), expected.results());
  }
}

TEST(LayerCalls, APlanForOtherNamesIsRefused) {
  LayerCall call(large(LayerKind::gqa, DType::fp32));
  const fovea::Plan plan = prepare(describe(call.forward, call.options), {}, "cpu.own");
  call.options.plan = &plan;
  try {
    call.run_forward();
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.details().argument, "plan");
    EXPECT_NE(std::string(error.what()).find("cpu.own"), std::string::npos) << error.what();
  }
  call.options.product = "cpu.own";
  call.run_forward();
}

TEST(LayerCalls, APlanIsMadeOnce) {
  const auto made = [] { return core::Chooser<Types>::Cache::instance().made(); };
  LayerCall call(large(LayerKind::mqa, DType::fp32));
  call.run();
  const std::int64_t before = made();
  call.run();
  EXPECT_EQ(made(), before);
}

TEST(LayerCalls, PartsRunAsNamed) {
  LayerCall call(large(LayerKind::mha, DType::fp32));
  call.options.attention = "cpu.scalar", call.options.product = "cpu.own";
  const LayerProblem problem = describe(call.forward, call.options);
  const LayerExplanation told = explain(problem, "cpu.scalar", "cpu.own");
  EXPECT_EQ(told.attention, "cpu.scalar");
  EXPECT_EQ(told.product, "cpu.own");
  call.run();
  call.options.attention = "nothing";
  EXPECT_THROW(call.run_forward(), Error);
  EXPECT_THROW(explain(problem, "nothing"), Error);
  EXPECT_THROW(explain(problem, {}, "nothing"), Error);
}

TEST(LayerCalls, TellPartsBeforeTheyRun) {
  Shape shape = large(LayerKind::mha, DType::fp32);
  shape.rotary = Rotary{};
  LayerCall call(shape);
  std::string names;
  double flops_told = 0;
  call.options.watch = [&](const LayerPart& part) {
    names += std::string(part.name) + ", ";
    flops_told += part.flops;
    EXPECT_GT(part.bytes, 0) << part.name;
  };
  call.run_forward();
  EXPECT_EQ(names, "q, row passes, k, row passes, v, attention, out, ");
  EXPECT_DOUBLE_EQ(flops_told, flops(describe(call.forward, call.options)));
  names.clear(), flops_told = 0;
  call.run_backward();
  EXPECT_EQ(names, "out, attention, row passes, out, q, k, v, ");
  EXPECT_DOUBLE_EQ(flops_told, flops(describe(call.backward, call.options)));
}

TEST(LayerCalls, ExplainTellsPartsAndSavedTensors) {
  LayerCall call(large(LayerKind::mla, DType::bf16));
  const LayerExplanation forward = explain(describe(call.forward, call.options)),
                         backward = explain(describe(call.backward, call.options));
  const auto names = [](const auto& all) {
    std::string text;
    for (const auto& one : all) text += one.name + " ";
    return text;
  };
  EXPECT_EQ(names(forward.parts), "q_down kv_down q k v attention out ");
  EXPECT_EQ(names(backward.parts), "out attention out k v dkv_latent q q_down kv_down dx ");
  EXPECT_EQ(names(forward.saved), "q_latent kv_latent q k v attention lse ");
  EXPECT_EQ(names(forward.saved), names(backward.saved));
  const double rows = 300, e = 96;
  EXPECT_EQ(forward.saved_bytes, saved_bytes(describe(call.forward, call.options)));
  EXPECT_EQ(forward.saved[2].bytes, 300 * 96 * 2);
  EXPECT_EQ(forward.flops - forward.parts[5].explanation.flops,
            2 * rows * (e * 40 + e * 24 + 40 * e + 2 * 24 * e + e * e));
}

}  // namespace
}  // namespace fovea::layers
