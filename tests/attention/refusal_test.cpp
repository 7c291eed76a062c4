// Every refusal of the contract, as rows of tables.
#include <limits>

#include "attention/refusals.h"

namespace fovea {
namespace {

TEST(Refusal, NullPointers) {
  expect_all_refused({
      {"q", [](Call& c) { c.q_is([](TensorView& q) { q.data = nullptr; }); }, "q", {"null", "48 elements"}},
      {"k", [](Call& c) { c.k_is([](TensorView& k) { k.data = nullptr; }); }, "k", {"null", "32 elements"}},
      {"out", [](Call& c) { c.forward.out.data = nullptr; }, "out", {"null"}, true, false},
      {"out in", [](Call& c) { c.backward.out.data = nullptr; }, "out", {"null"}, false, true},
      {"lse in", [](Call& c) { c.backward.lse.data = nullptr; }, "lse", {"null"}, false, true},
      {"dout", [](Call& c) { c.backward.dout.data = nullptr; }, "dout", {"null"}, false, true},
      {"no gradients",
       [](Call& c) { c.backward.dq = c.backward.dk = c.backward.dv = {}; },
       "dq",
       {"null"},
       false,
       true},
  });
}

TEST(Refusal, MissingTensors) {
  expect_all_refused({
      {"k", [](Call& c) { c.k_is([](TensorView& k) { k = {}; }); }, "k", {"is missing", "(0, 0, 0, 0)"}},
      {"out", [](Call& c) { c.forward.out = {}; }, "out", {"is missing"}, true, false},
      {"lse", [](Call& c) { c.backward.lse = {}; }, "lse", {"is missing", "forward"}, false, true},
      {"out without delta", [](Call& c) { c.backward.out = {}; }, "out", {"is missing", "delta"}, false, true},
      {"dout", [](Call& c) { c.backward.dout = {}; }, "dout", {"is missing"}, false, true},
  });
}

TEST(Refusal, NullIsAcceptedForEmptyTensors) {
  for (const std::string& engine : engines_of_all_types()) {
    const AttentionOptions options{.implementation = engine};
    ForwardTensors t{.q = {.sizes = {1, 2, 0, 8}}, .k = {.sizes = {1, 2, 0, 8}}, .v = {.sizes = {1, 2, 0, 8}}};
    t.out.sizes = {1, 2, 0, 8};
    EXPECT_NO_THROW(attention_forward(t, options)) << engine;
  }
}

TEST(Refusal, ImpossibleSizes) {
  const std::int64_t huge = std::int64_t{1} << 40;
  expect_all_refused({
      {"negative", [](Call& c) { c.q_is([](TensorView& q) { q.sizes[2] = -3; }); }, "q", {"-3", "0 or more"}},
      {"overflow",
       [huge](Call& c) { c.k_is([huge](TensorView& k) {
                           k.sizes = {huge, huge, 4, 8};
                         }); },
       "k",
       {"overflows", "1099511627776"}},
      {"address space",
       [huge](Call& c) { c.v_is([huge](TensorView& v) { v.strides[2] = huge << 20; }); },
       "v",
       {"strides"}},
  });
}

TEST(Refusal, ZeroDimensionsAndZeroKeyHeads) {
  expect_all_refused({
      {"dim_qk",
       [](Call& c) {
         c.q_is([](TensorView& q) { q.sizes[3] = 0; });
         c.k_is([](TensorView& k) { k.sizes[3] = 0; });
       },
       "q",
       {"head dimension", "0", "1 to"},
       true,
       false},
      {"dim_qk backward",
       [](Call& c) {
         c.q_is([](TensorView& q) { q.sizes[3] = 0; });
         c.k_is([](TensorView& k) { k.sizes[3] = 0; });
         c.backward.dq.sizes[3] = c.backward.dk.sizes[3] = 0;
       },
       "q",
       {"head dimension", "0", "1 to 4096"},
       false,
       true},
      {"dim_v",
       [](Call& c) {
         c.v_is([](TensorView& v) { v.sizes[3] = 0; });
         c.forward.out.sizes[3] = c.backward.out.sizes[3] = 0;
         c.backward.dout.sizes[3] = c.backward.dv.sizes[3] = 0;
       },
       "v",
       {"head dimension", "0", "1 to 4096"}},
      {"key heads",
       [](Call& c) {
         c.k_is([](TensorView& k) { k.sizes[1] = 0; });
         c.v_is([](TensorView& v) { v.sizes[1] = 0; });
         c.backward.dk.sizes[1] = c.backward.dv.sizes[1] = 0;
       },
       "k",
       {"heads_kv 0"}},
  });
}

TEST(Refusal, QueryHeadsThatAreNotAMultipleOfKeyHeads) {
  const auto heads = [](std::int64_t count) {
    return [count](Call& c) {
      c.k_is([count](TensorView& k) { k.sizes = {1, count, 1, 8}, k.strides = dense_strides(k.sizes); });
      c.v_is([count](TensorView& v) { v.sizes = {1, count, 1, 8}, v.strides = dense_strides(v.sizes); });
      for (MutableTensorView* view : {&c.backward.dk, &c.backward.dv}) {
        view->sizes = {1, count, 1, 8};
        view->strides = dense_strides(view->sizes);
      }
    };
  };
  expect_all_refused({
      {"3 of 2", heads(3), "k", {"heads_q 2, heads_kv 3", "heads_q % heads_kv == 0"}},
      {"4 of 2", heads(4), "k", {"heads_q 2, heads_kv 4"}},
  });
}

TEST(Refusal, SizesOfTensorsThatDisagree) {
  expect_all_refused({
      {"dim of k",
       [](Call& c) { c.k_is([](TensorView& k) { k.sizes[3] = 4; }); },
       "k",
       {"(1, 1, 4, 4)", "(1, 1, 4, 8)"}},
      {"len of v",
       [](Call& c) { c.v_is([](TensorView& v) { v.sizes[2] = 3; }); },
       "v",
       {"(1, 1, 3, 8)", "(1, 1, 4, 8)"}},
      {"batch of v", [](Call& c) { c.v_is([](TensorView& v) {
                                     v.sizes = {2, 1, 2, 8};
                                   }); }, "v", {"(2, 1, 2, 8)"}},
      {"out", [](Call& c) { c.forward.out.sizes[2] = 2; }, "out", {"(1, 2, 2, 8)", "(1, 2, 3, 8)"}, true, false},
      {"lse", [](Call& c) { c.forward.lse.sizes[2] = 2; }, "lse", {"(1, 2, 2, 1)", "(1, 2, 3, 1)"}, true, false},
      {"dim of lse", [](Call& c) { c.forward.lse.sizes[3] = 2; }, "lse", {"(1, 2, 3, 2)", "(1, 2, 3, 1)"}, true, false},
      {"dout", [](Call& c) { c.backward.dout.sizes[3] = 4; }, "dout", {"(1, 2, 3, 4)", "(1, 2, 3, 8)"}, false, true},
      {"dk", [](Call& c) { c.backward.dk.sizes[2] = 3; }, "dk", {"(1, 1, 3, 8)", "(1, 1, 4, 8)"}, false, true},
      {"causal", [](Call& c) { c.options.mask = Mask::causal; }, "mask", {"len_q 3, len_k 4", "causal_bottom_right"}},
  });
}

TEST(Refusal, HeadDimensionsAboveTheLimit) {
  std::vector<float> wide(2 * 3 * 4097);
  const auto widen = [&wide](auto& view) {
    view.sizes[3] = 4097;
    view.strides = dense_strides(view.sizes);
    view.data = wide.data();
    view.buffer_bytes = -1;
  };
  expect_all_refused({
      {"dim_qk", [widen](Call& c) { c.q_is(widen), c.k_is(widen); }, "q", {"head dimension", "4097", "1 to 4096"}},
      {"dim_v", [widen](Call& c) { c.v_is(widen); }, "v", {"head dimension", "4097", "1 to 4096"}},
  });
}

TEST(Refusal, ElementTypes) {
  const auto unknown = static_cast<DType>(9);
  expect_all_refused({
      {"unknown",
       [unknown](Call& c) { c.q_is([unknown](TensorView& q) { q.dtype = unknown; }); },
       "q",
       {"9", "fp32, bf16, fp16"}},
      {"mixed", [](Call& c) { c.k_is([](TensorView& k) { k.dtype = DType::bf16; }); }, "k", {"bf16", "fp32"}},
      {"result", [](Call& c) { c.forward.out.dtype = DType::fp16; }, "out", {"fp16", "fp32"}, true, false},
      {"lse", [](Call& c) { c.forward.lse.dtype = DType::bf16; }, "lse", {"bf16", "fp32"}, true, false},
      {"mixed gradients", [](Call& c) { c.backward.dv.dtype = DType::bf16; }, "dv", {"bf16", "fp32"}, false, true},
      {"delta",
       [](Call& c) {
         c.backward.delta = contiguous(c.delta_in.data(), DType::bf16, {1, 2, 3, 1});
       },
       "delta",
       {"bf16", "fp32"},
       false,
       true},
  });
}

TEST(Refusal, AccumulationIntoSixteenBits) {
  for (const std::string& engine : engines()) {
    verification::CaseTensors tensors =
        verification::make_tensors(verification::attention_case("pass=bwd lq=4 d=8 dtype=bf16"));
    BackwardTensors call = tensors.backward();
    call.accumulate = true;
    try {
      attention_backward(call, {.implementation = engine});
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.details().argument, "accumulate");
      EXPECT_NE(std::string(error.what()).find("bf16"), std::string::npos);
    }
  }
}

TEST(Refusal, StridesAndSharedMemory) {
  std::vector<float> both(31 + 48);
  expect_all_refused({
      {"last stride",
       [](Call& c) { c.k_is([](TensorView& k) { k.strides[3] = 2; }); },
       "k",
       {"strides[3] == 1", "(32, 32, 8, 2)"}},
      {"negative stride",
       [](Call& c) { c.q_is([](TensorView& q) { q.strides[2] = -8; }); },
       "q",
       {"(48, 24, -8, 1)", "0 or more"}},
      {"stride 0 on out",
       [](Call& c) { c.forward.out.strides[1] = 0; },
       "out",
       {"stride 0", "(48, 0, 8, 1)"},
       true,
       false},
      {"stride 0 on dk", [](Call& c) { c.backward.dk.strides[2] = 0; }, "dk", {"stride 0"}, false, true},
      {"overlapping rows",
       [](Call& c) { c.forward.out.strides[2] = 7; },
       "out",
       {"do not nest", "(48, 24, 7, 1)", "strides[2] of 8 or more"},
       true,
       false},
      {"interleaved heads",  // every index has an element of its own all the same
       [](Call& c) {
         c.forward.out.strides = {96, 24, 16, 1};
       },
       "out",
       {"do not nest", "(96, 24, 16, 1)", "strides[1] of 40 or more"},
       true,
       false},
      {"out is q", [](Call& c) { c.forward.out.data = c.q.data(); }, "out", {"`q`", "overlapping"}, true, false},
      {"out within v",
       [&both](Call& c) {
         c.forward.v.data = both.data();
         c.forward.out.data = both.data() + 31;  // the last element of v
       },
       "out",
       {"`v`"},
       true,
       false},
      {"lse is out", [](Call& c) { c.forward.lse.data = c.out.data(); }, "out", {"lse"}, true, false},
      {"dk is dv", [](Call& c) { c.backward.dv.data = c.dk.data(); }, "dk", {"dv"}, false, true},
      {"dq is dout", [](Call& c) { c.backward.dq.data = c.dout.data(); }, "dq", {"dout"}, false, true},
      {"buffer", [](Call& c) { c.k_is([](TensorView& k) { k.buffer_bytes = 127; }); }, "k", {"127 bytes", "128 bytes"}},
      {"negative buffer", [](Call& c) { c.q_is([](TensorView& q) { q.buffer_bytes = -7; }); }, "q", {"-7 bytes", "-1"}},
      {"out buffer", [](Call& c) { c.forward.out.buffer_bytes = 191; }, "out", {"191 bytes", "192 bytes"}, true, false},
  });
}

TEST(Refusal, PointersNotAlignedToElements) {
  const auto off = [](auto& view) {
    view.data = reinterpret_cast<decltype(view.data)>(reinterpret_cast<std::uintptr_t>(view.data) + 2);
  };
  expect_all_refused({
      {"k", [off](Call& c) { c.k_is(off); }, "k", {"multiple of 4 bytes"}},
      {"out", [off](Call& c) { off(c.forward.out); }, "out", {"multiple of 4 bytes"}, true, false},
      {"dq", [off](Call& c) { off(c.backward.dq); }, "dq", {"multiple of 4 bytes"}, false, true},
  });
  // The scratch memory begins at a multiple of 64 bytes.
  const auto at = [](std::size_t bytes) {
    return
        [bytes](Call& c) { c.k_is([&](TensorView& view) { view.data = reinterpret_cast<char*>(c.scratch) + bytes; }); };
  };
  expect_all_refused({
      {"k at 6", at(6), "k", {"address ending in 6\n", "multiple of 4 bytes"}},
      {"k at 74", at(74), "k", {"address ending in 10\n", "multiple of 4 bytes"}},
  });
}

TEST(Refusal, Devices) {
  expect_all_refused({
      {"k elsewhere",
       [](Call& c) { c.k_is([](TensorView& k) {
                       k.device = {DeviceKind::cuda, 1};
                     }); },
       "k",
       {"cuda:1", "cpu:0"}},
      {"out elsewhere",
       [](Call& c) {
         c.forward.out.device = {DeviceKind::cuda, 0};
       },
       "out",
       {"cuda:0", "cpu:0"},
       true,
       false},
      {"unknown device",
       [](Call& c) { c.q_is([](TensorView& q) { q.device.kind = static_cast<DeviceKind>(7); }); },
       "q",
       {"7", "cpu, cuda"}},
  });
}

TEST(Refusal, MissingDevices) {
  const auto index = [](Call& c, int number) {
    for (auto* view : {&c.forward.q, &c.forward.k, &c.forward.v}) view->device.index = number;
    for (auto* view : {&c.backward.q, &c.backward.k, &c.backward.v}) view->device.index = number;
  };
  expect_all_refused({
      {"second", [index](Call& c) { index(c, 1); }, "q", {"no such device", "cpu:1", "cpu:0"}},
      {"negative", [index](Call& c) { index(c, -1); }, "q", {"no such device", "cpu:-1", "cpu:0"}},
  });
  AttentionProblem problem;
  problem.device.index = 2;
  EXPECT_THROW(explain(problem), Error);
}

TEST(Refusal, ScalesThatAreNotFinite) {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  expect_all_refused({
      {"NaN", [](Call& c) { c.options.scale = std::numeric_limits<double>::quiet_NaN(); }, "scale", {"nan", "finite"}},
      {"infinity", [](Call& c) { c.options.scale = kInfinity; }, "scale", {"inf", "finite"}},
      {"-infinity", [](Call& c) { c.options.scale = -kInfinity; }, "scale", {"-inf", "finite"}},
  });
  for (const char* scale : {"0", "-0.5", "-0", "1e-30", "3"})  // of any sign and size is accepted and right
    expect_right_everywhere("pass=e2e b=1 hq=2 lq=20 lk=30 d=16 scale=" + std::string(scale));
}

TEST(Refusal, ImpossibleOptions) {
  static const ExternalThreadPool kNoThreads{.threads = 0};
  static const ExternalThreadPool kManyThreads{
      .threads = 4097, .run = [](void*, std::int64_t, void (*)(void*, std::int64_t, int), void*) {}};
  expect_all_refused({
      {"threads", [](Call& c) { c.options.threads = -1; }, "threads", {"-1"}},
      {"too_many_threads", [](Call& c) { c.options.threads = 4097; }, "threads", {"4097", "1 to 4096"}},
      {"thread_pool", [](Call& c) { c.options.thread_pool = &kNoThreads; }, "thread_pool", {"0 threads"}},
      {"large_pool", [](Call& c) { c.options.thread_pool = &kManyThreads; }, "thread_pool", {"4097 threads", "4096"}},
      {"mask",
       [](Call& c) { c.options.mask.alignment = static_cast<Mask::Alignment>(17); },
       "mask",
       {"17", "causal_top_left", "window_bottom_right"}},
  });
}

TEST(Refusal, ImpossibleWindows) {
  constexpr std::int64_t kAll = Mask::kUnlimited, kTooMany = Mask::kLargestBound + 1;
  const auto refused = [](const char* name, const Mask& mask, const char* argument, std::vector<const char*> words) {
    return Refusal{name, [mask](Call& c) { c.options.mask = mask; }, argument, std::move(words)};
  };
  expect_all_refused({
      refused("negative left", Mask::window_top_left(-1, 0), "mask.left", {"got:    -1", "0 to 2^62"}),
      refused("negative right", Mask::window_bottom_right(0, -7), "mask.right", {"got:    -7", "0 to 2^62"}),
      refused("left beyond 2^62", Mask::window_top_left(kTooMany, 0), "mask.left", {"4611686018427387905", "2^62"}),
      refused("right beyond 2^62", Mask::window_top_left(0, kTooMany), "mask.right", {"4611686018427387905", "2^62"}),
      refused("unequal lengths", Mask::window(2, 0), "mask",
              {"len_q 3, len_k 4", "len_q == len_k, or window_top_left or window_bottom_right"}),
      refused("no limit", Mask::window_top_left(kAll, kAll), "mask",
              {"left unlimited, right unlimited", "a limit for left or right, or none", "is called none"}),
      refused("no alignment", Mask{.left = 3}, "mask", {"left 3, right unlimited", "window, window_top_left"}),
  });
}

TEST(Refusal, UnknownImplementationNamesTheNearest) {
  Call call;
  call.options.implementation = "referense";
  try {
    attention_forward(call.forward, call.options);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.details().argument, "implementation");
    EXPECT_EQ(error.details().got, "referense");
    EXPECT_NE(error.details().hint.find("`reference`"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(call.outputs_untouched());
}

TEST(Refusal, CudaTensorsAreNeverRunOnTheCpu) {
  Call call;
  for (auto* view : {&call.forward.q, &call.forward.k, &call.forward.v}) view->device = {DeviceKind::cuda, 0};
  call.forward.out.device = call.forward.lse.device = {DeviceKind::cuda, 0};
  call.options.implementation = "reference";
  try {
    attention_forward(call.forward, call.options);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::unsupported);
    EXPECT_NE(std::string(error.what()).find("reference: runs on cpu"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(call.outputs_untouched());
}

}  // namespace
}  // namespace fovea
