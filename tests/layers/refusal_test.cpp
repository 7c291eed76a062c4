// Every refusal of a layer comes before anything is written, with the values and what would be accepted.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "layer_call.h"

namespace fovea::layers {
namespace {

struct Refusal {
  const char* argument;
  std::function<void(LayerCall&)> spoil;
  std::vector<std::string> words;  // what was got and what is wanted
  bool forward = true, backward = true;
};

void expect_refused(const Shape& shape, const Refusal& refusal, bool forward) {
  LayerCall call(shape);
  call.run_forward();
  call.tensor("y").for_each([&](std::int64_t i) { call.tensor("y").set(i, NAN); });
  const auto before = call.results();
  refusal.spoil(call);
  try {
    forward ? call.run_forward() : call.run_backward();
    ADD_FAILURE() << "not refused: " << refusal.argument << (forward ? " forward" : " backward");
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_EQ(error.details().call, forward ? "layer_forward" : "layer_backward");
    EXPECT_EQ(error.details().argument, refusal.argument) << error.what();
    EXPECT_FALSE(error.details().got.empty() || error.details().wanted.empty()) << error.what();
    for (const std::string& word : refusal.words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << " is not in\n" << error.what();
  }
  for (const auto& [name, values] : call.results()) {
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_TRUE(std::isnan(values[i]) && std::isnan(before.at(name)[i]));
  }
}

void expect_all_refused(const Shape& shape, const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    if (refusal.forward) expect_refused(shape, refusal, true);
    if (refusal.backward) expect_refused(shape, refusal, false);
  }
}

constexpr Shape kGqa{.kind = LayerKind::gqa, .heads_kv = 2};
constexpr Shape kMla{.kind = LayerKind::mla, .latent_q = 6, .latent_kv = 5};
constexpr Shape kCross{.kind = LayerKind::mha, .len_k = 9, .width_kv = 10, .cross = true};

// In both passes.
auto parameters(const std::function<void(LayerParameters&)>& change) {
  return [change](LayerCall& c) { change(c.forward.parameters), change(c.backward.parameters); };
}

TEST(LayerRefusals, HeadsThatDoNotDivide) {
  expect_all_refused(
      kGqa, {{"heads_q", [](LayerCall& c) { c.options.heads_q = 0; }, {"0", "1 or more"}},
             {"heads_q", [](LayerCall& c) { c.options.heads_q = -4; }, {"-4"}},
             {"heads_kv", [](LayerCall& c) { c.options.heads_kv = 3; }, {"heads_q 4, heads_kv 3"}},
             {"heads_kv", [](LayerCall& c) { c.options.heads_kv = 0; }, {"0", "a divisor of heads_q"}},
             {"q.weight", [](LayerCall& c) { c.options.heads_q = 10; }, {"12 rows, 10 heads", "heads_q times"}},
             {"v.weight", [](LayerCall& c) { c.options.heads_kv = c.options.heads_q = 4; }, {"6 rows, 4 heads"}}});
  expect_all_refused({.kind = LayerKind::mha},
                     {{"heads_kv", [](LayerCall& c) { c.options.heads_kv = 2; }, {"heads_kv 4, or kind gqa"}}});
  expect_all_refused({.kind = LayerKind::mqa, .heads_kv = 1},
                     {{"heads_kv", [](LayerCall& c) { c.options.heads_kv = 2; }, {"heads_kv 1, or kind gqa"}}});
  expect_all_refused({}, {{"qkv.weight",
                           [](LayerCall& c) { c.options.heads_q = 5, c.options.heads_kv = 0; },
                           {"36 rows, 5 heads", "3 heads_q times"}}});
}

TEST(LayerRefusals, WeightsOfOtherShapesTypesAndDevices) {
  expect_all_refused(
      kGqa,
      {{"k.weight",
        parameters([](LayerParameters& p) { p.k.weight.sizes[2] = 9; }),
        {"(1, 1, 9, 12)", "(1, 1, 6, 12)"}},
       {"q.weight", parameters([](LayerParameters& p) { p.q.weight.sizes[3] = 11; }), {"(1, 1, 12, 12)"}},
       {"out.weight", parameters([](LayerParameters& p) { p.out.weight.sizes[0] = 2, p.out.weight.sizes[2] = 1; }), {}},
       {"v.weight", parameters([](LayerParameters& p) { p.v.weight.dtype = DType::bf16; }), {"bf16", "fp32"}},
       {"v.weight",
        parameters([](LayerParameters& p) {
          p.v.weight.device = {DeviceKind::cuda, 1};
        }),
        {"cuda:1", "cpu:0"}},
       {"v.weight", parameters([](LayerParameters& p) { p.v.weight.strides[2] = 11; }), {"strides[2] of 12 or more"}},
       {"v.weight", parameters([](LayerParameters& p) { p.v.weight = {}; }), {"missing"}},
       {"q.bias", parameters([](LayerParameters& p) { p.q.bias.sizes[3] = 6; }), {"(1, 1, 1, 12)"}, true, false},
       {"q.bias", parameters([](LayerParameters& p) { p.q.bias.dtype = DType::fp16; }), {"fp16"}, true, false},
       {"gradients.k.weight",
        [](LayerCall& c) { c.backward.gradients.k.weight.sizes[2] = 3; },
        {"(1, 1, 6, 12)"},
        false},
       {"gradients.k.bias", [](LayerCall& c) { c.backward.gradients.k.bias.dtype = DType::bf16; }, {"fp32"}, false},
       {"gradients.v.weight",
        [](LayerCall& c) { c.backward.gradients.v.weight.device.kind = DeviceKind::cuda; },
        {"cuda:0"},
        false}});
}

TEST(LayerRefusals, ProjectionsThatAKindDoesNotHave) {
  const auto more = parameters([](LayerParameters& p) { p.qkv = p.out; });
  expect_all_refused(kGqa, {{"qkv", more, {"gqa has no such projection", "q, k, v, out"}}});
  expect_all_refused(
      {},
      {{"kv_down", parameters([](LayerParameters& p) { p.kv_down = p.out; }), {"qkv, out"}},
       {"gradients.q", [](LayerCall& c) { c.backward.gradients.q = c.backward.gradients.out; }, {"qkv, out"}, false}});
  expect_all_refused({}, {{"kind",
                           [](LayerCall& c) { c.options.kind = static_cast<LayerKind>(9); },
                           {"9", "mha_fused, mha, gqa, mqa, mla"}}});
}

TEST(LayerRefusals, LatentsOfZero) {
  expect_all_refused(
      kMla,
      {{"latent_q", parameters([](LayerParameters& p) { p.q_down.weight.sizes[2] = 0; }), {"no latent", "1 or more"}},
       {"latent_kv", parameters([](LayerParameters& p) { p.kv_down.weight.sizes[2] = 0; }), {"no latent"}},
       {"q.weight",
        parameters([](LayerParameters& p) { p.q_down.weight.sizes[2] = 5; }),
        {"(1, 1, 12, 6)", "(1, 1, 12, 5)"}}});
}

TEST(LayerRefusals, InputsAndResults) {
  expect_all_refused(
      kCross,
      {{"x",
        [](LayerCall& c) { c.forward.x.sizes[1] = c.backward.x.sizes[1] = 2; },
        {"(2, 2, 7, 12)", "(2, 1, 7, 12)"}},
       {"x", [](LayerCall& c) { c.forward.x = c.backward.x = {}; }, {"missing"}},
       {"x_kv", [](LayerCall& c) { c.forward.x_kv.sizes[0] = c.backward.x_kv.sizes[0] = 1; }, {"(2, 1, 9, 10)"}},
       {"x_kv", [](LayerCall& c) { c.forward.x_kv.dtype = c.backward.x_kv.dtype = DType::bf16; }, {"bf16"}},
       {"k.weight", [](LayerCall& c) { c.forward.x_kv.sizes[3] = c.backward.x_kv.sizes[3] = 9; }, {"(1, 1, 12, 9)"}},
       {"y", [](LayerCall& c) { c.forward.y.sizes[2] = 6; }, {"(2, 1, 7, 12)"}, true, false},
       {"y", [](LayerCall& c) { c.forward.y.dtype = DType::fp16; }, {"fp16", "fp32"}, true, false},
       {"y", [](LayerCall& c) { c.forward.y = {}; }, {"missing"}, true, false},
       {"y", [](LayerCall& c) { c.forward.y.data = const_cast<void*>(c.forward.x.data); }, {"`x`"}, true, false},
       {"dy", [](LayerCall& c) { c.backward.dy.sizes[3] = 11; }, {"(2, 1, 7, 12)"}, false},
       {"dx", [](LayerCall& c) { c.backward.dx.sizes[2] = 6; }, {"(2, 1, 7, 12)"}, false},
       {"dx_kv", [](LayerCall& c) { c.backward.dx_kv.dtype = DType::bf16; }, {"fp32"}, false},
       {"gradients.k.weight",
        [](LayerCall& c) { c.backward.gradients.k.weight.data = c.backward.gradients.v.weight.data; },
        {"gradients.v.weight"},
        false}});
  expect_all_refused(
      {},
      {{"x_kv", [](LayerCall& c) { c.forward.x_kv = c.backward.x_kv = c.forward.x; }, {"mha has separate projections"}},
       {"dx_kv", [](LayerCall& c) { c.backward.dx_kv = c.backward.dx; }, {"dx holds"}, false}});
}

TEST(LayerRefusals, OptionsAndBuffers) {
  expect_all_refused(
      kMla,
      {{"scale", [](LayerCall& c) { c.options.scale = std::numeric_limits<double>::infinity(); }, {"finite"}},
       {"mask.left", [](LayerCall& c) { c.options.mask = Mask::window(-1, 2); }, {"-1"}},
       {"threads", [](LayerCall& c) { c.options.threads = -2; }, {"-2"}},
       {"workspace",
        [](LayerCall& c) {
          c.options.workspace = {nullptr, 64};
        },
        {"64 bytes"}},
       {"saved", [](LayerCall& c) { c.forward.saved.bytes = c.backward.saved.bytes = 100; }, {"100 bytes", "at least"}},
       {"saved", [](LayerCall& c) { c.backward.saved = {}; }, {"null", "layer_forward"}, false},
       {"workspace", [](LayerCall& c) { c.options.workspace = c.forward.saved; }, {"`saved`"}},
       {"implementation", [](LayerCall& c) { c.options.attention = "cpu.avx3"; }, {"cpu.avx3", "one of"}},
       {"implementation", [](LayerCall& c) { c.options.product = "cpu.mkl"; }, {"cpu.mkl", "cpu.own"}},
       {"dx", [](LayerCall& c) { c.backward.dx = {}, c.backward.gradients = {}; }, {"no gradient"}, false}});
  Shape cross = kCross;
  cross.mask = Mask::none;
  expect_all_refused(
      cross,
      {{"mask", [](LayerCall& c) { c.options.mask = Mask::causal; }, {"len_q 7, len_k 9", "causal_bottom_right"}}});
  Shape bf16 = kGqa;
  bf16.dtype = bf16.result = DType::bf16;
  expect_all_refused(bf16,
                     {{"accumulate", [](LayerCall& c) { c.backward.accumulate = true; }, {"bf16", "fp32"}, false}});
}

constexpr Shape kRotated{
    .kind = LayerKind::gqa, .heads_kv = 2, .dim_qk = 4, .dim_v = 4, .rotary = Rotary{}, .qk_norm = true};
constexpr Shape kShared{.kind = LayerKind::mla,
                        .dim_qk = 8,
                        .dim_v = 4,
                        .latent_q = 6,
                        .latent_kv = 5,
                        .dim_shared = 2,
                        .rotary = Rotary{},
                        .latent_norm = true};

auto rotary(const std::function<void(Rotary&)>& change) {
  return [change](LayerCall& c) { change(*c.options.rotary); };
}
auto norms(const std::function<void(LayerNorms&)>& change) {
  return [change](LayerCall& c) { change(c.forward.norms), change(c.backward.norms); };
}

TEST(LayerRefusals, RotaryEmbedding) {
  constexpr std::int64_t kLast = Rotary::kMaxPosition;
  expect_all_refused(
      kRotated,
      {{"rotary.theta", rotary([](Rotary& r) { r.theta = 0.5; }), {"0.5", "1 or more"}},
       {"rotary.theta", rotary([](Rotary& r) { r.theta = std::numeric_limits<double>::infinity(); }), {"inf"}},
       {"rotary.pairs", rotary([](Rotary& r) { r.pairs = static_cast<RotaryPairs>(2); }), {"interleaved, halves"}},
       {"rotary.columns", rotary([](Rotary& r) { r.columns = 3; }), {"3", "an even number up to 4"}},
       {"rotary.columns", rotary([](Rotary& r) { r.columns = 6; }), {"6", "up to 4"}},
       {"rotary.columns", rotary([](Rotary& r) { r.columns = -2; }), {"-2"}},
       {"rotary.position_q", rotary([](Rotary& r) { r.position_q = -1; }), {"-1", "0 to 16777216"}},
       {"rotary.position_q", rotary([](Rotary& r) { r.position_q = kLast - 5; }), {"the first of 7 rows"}},
       {"rotary.position_k", rotary([](Rotary& r) { r.position_k = INT64_MAX; }), {"9223372036854775807"}}});
  Shape odd = kGqa;
  expect_all_refused(odd, {{"rotary.columns", [](LayerCall& c) { c.options.rotary = Rotary{}; }, {"3", "up to 3"}}});
}

TEST(LayerRefusals, Norms) {
  expect_all_refused(
      kRotated,
      {{"norms.q", norms([](LayerNorms& n) { n.q.sizes[3] = 3; }), {"(1, 1, 1, 4)", "(1, 1, 1, 3)"}},
       {"norms.k", norms([](LayerNorms& n) { n.k.dtype = DType::bf16; }), {"bf16", "fp32"}},
       {"norms.k",
        norms([](LayerNorms& n) {
          n.k.device = {DeviceKind::cuda, 0};
        }),
        {"cuda:0"}},
       {"norms.q_latent", norms([](LayerNorms& n) { n.q_latent = n.q; }), {"only mla has latents"}},
       {"epsilon", [](LayerCall& c) { c.options.epsilon = 0; }, {"above 0"}},
       {"epsilon", [](LayerCall& c) { c.options.epsilon = -1e-6; }, {"above 0"}},
       {"norm_gradients.q", [](LayerCall& c) { c.backward.norm_gradients.q.sizes[3] = 2; }, {"(1, 1, 1, 4)"}, false},
       {"norm_gradients.q", [](LayerCall& c) { c.backward.norms.q = {}; }, {"norms.q"}, false},
       {"norm_gradients.q",
        [](LayerCall& c) { c.backward.norm_gradients.k.data = c.backward.norm_gradients.q.data; },
        {"norm_gradients.k"},
        false}});
}

TEST(LayerRefusals, TheSharedRotaryKey) {
  expect_all_refused(
      kShared,
      {{"rotary", [](LayerCall& c) { c.options.rotary.reset(); }, {"k.weight makes 6 of 8 columns"}},
       {"rotary.columns", rotary([](Rotary& r) { r.columns = 4; }), {"0, or 2"}},
       {"norms.q", norms([](LayerNorms& n) { n.q = n.kv_latent; }), {"latents are normalised instead"}},
       {"k.weight", parameters([](LayerParameters& p) { p.k.weight.sizes[2] = 36; }), {"9 columns a head", "1 to 8"}},
       {"latent_kv", parameters([](LayerParameters& p) { p.kv_down.weight.sizes[2] = 2; }), {"no latent"}},
       {"rotary.columns", parameters([](LayerParameters& p) { p.k.weight.sizes[2] = 20; }), {"which must be even"}}});
}

void expect_problem_refused(LayerProblem p, const char* argument) {
  try {
    workspace_bytes(p);
    ADD_FAILURE() << "not refused: " << argument;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_EQ(error.details().argument, argument) << error.what();
  }
}

TEST(LayerRefusals, ProblemsMadeByHand) {
  const LayerProblem good{.heads_q = 4, .heads_kv = 4};
  EXPECT_GT(workspace_bytes(good), 0);
  const auto spoiled = [&](auto member, auto value) {
    LayerProblem p = good;
    p.*member = value;
    return p;
  };
  constexpr std::int64_t kHuge = std::int64_t{1} << 61;
  expect_problem_refused(spoiled(&LayerProblem::batch, -1), "batch");
  expect_problem_refused(spoiled(&LayerProblem::len_k, 2), "len_k");
  expect_problem_refused(spoiled(&LayerProblem::width, 0), "width");
  expect_problem_refused(spoiled(&LayerProblem::dim_qk, 5000), "dim_qk");
  expect_problem_refused(spoiled(&LayerProblem::dim_v, 2), "dim_v");
  expect_problem_refused(spoiled(&LayerProblem::latent_q, 3), "latent_q");
  expect_problem_refused(spoiled(&LayerProblem::dim_shared, 1), "dim_shared");
  expect_problem_refused(spoiled(&LayerProblem::dim_shared, -1), "dim_shared");
  expect_problem_refused(spoiled(&LayerProblem::rotary, Rotary{}), "rotary.columns");
  expect_problem_refused(spoiled(&LayerProblem::norms, PerNorm<NormFacts>{.q = {.given = true}}), "epsilon");
  expect_problem_refused(spoiled(&LayerProblem::heads_kv, 2), "heads_kv");
  expect_problem_refused(spoiled(&LayerProblem::cross, true), "x_kv");
  expect_problem_refused(spoiled(&LayerProblem::kind, static_cast<LayerKind>(7)), "kind");
  expect_problem_refused(spoiled(&LayerProblem::pass, Pass::backward), "saves");
  expect_problem_refused(spoiled(&LayerProblem::result_dtype, DType::bf16), "result_dtype");
  LayerProblem p = good;
  p.heads_q = p.heads_kv = kHuge;
  expect_problem_refused(p, "problem");
  p = good, p.width = p.width_kv = kHuge;
  expect_problem_refused(p, "problem");
  p = good, p.device = {DeviceKind::cpu, 1};
  expect_problem_refused(p, "device");
}

}  // namespace
}  // namespace fovea::layers
