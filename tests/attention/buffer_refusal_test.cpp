// Refusals of buffers of the caller: workspace and saved state.
#include "attention/refusals.h"

namespace fovea {
namespace {

TEST(Refusal, WorkspacesTooSmallOrMisaligned) {
  const auto scratch_at = [](std::int64_t bytes, std::size_t offset) {
    return [bytes, offset](Call& c) { c.options.workspace = {reinterpret_cast<char*>(c.scratch) + offset, bytes}; };
  };
  expect_all_refused({
      {"misaligned", scratch_at(1024, 4), "workspace", {"4", "64 bytes"}},
      {"negative", scratch_at(-1, 0), "workspace", {"-1 bytes"}},
      {"null",
       [](Call& c) {
         c.options.workspace = {nullptr, 64};
       },
       "workspace",
       {"64 bytes", "null"}},
      {"saved null",
       [](Call& c) {
         c.forward.saved = c.backward.saved = {nullptr, 64};
       },
       "saved",
       {"null"}},
  });
  for (const std::string& engine : engines_of_all_types()) {
    Call call;
    const std::int64_t needed = workspace_bytes(describe(call.forward, {}), engine);
    if (needed == 0) continue;
    const std::string least = std::to_string(needed) + " bytes";
    expect_refused({"too small", scratch_at(needed - 1, 0), "workspace", {least.c_str()}, true, false}, true, engine);
  }
}

// Tensors are moved to the element 512 of the scratch memory, buffers lie before it or begin there.
TEST(Refusal, BuffersThatOverlapATensor) {
  const auto below = [](Call& c, std::int64_t past) { return Buffer{c.scratch, 4 * 512 + past}; };
  const auto workspace = [below](auto spoil) {
    return [=](Call& c) { spoil(c, c.scratch + 512), c.options.workspace = below(c, 1); };
  };
  const auto saved = [](auto spoil) {
    return [=](Call& c) {
      spoil(c, c.scratch + 512);
      c.forward.saved = c.backward.saved = {c.scratch + 512, 64};
    };
  };
  const auto q = [](Call& c, float* at) { c.q_is([at](TensorView& view) { view.data = at; }); };
  const auto out = [](Call& c, float* at) { c.forward.out.data = at; };
  const auto lse = [](Call& c, float* at) { c.forward.lse.data = at; };
  const auto dout = [](Call& c, float* at) { c.backward.dout.data = at; };
  const auto dk = [](Call& c, float* at) { c.backward.dk.data = at; };
  expect_all_refused({
      {"workspace over q", workspace(q), "workspace", {"`q`", "2049 bytes"}},
      {"workspace over out", workspace(out), "workspace", {"`out`"}, true, false},
      {"workspace over lse", workspace(lse), "workspace", {"`lse`"}, true, false},
      {"workspace over dout", workspace(dout), "workspace", {"`dout`"}, false, true},
      {"workspace over dk", workspace(dk), "workspace", {"`dk`"}, false, true},
      {"saved over q", saved(q), "saved", {"`q`", "64 bytes"}, true, false},
      {"saved over out", saved(out), "saved", {"`out`"}, true, false},
      {"saved over dk", saved(dk), "saved", {"`dk`"}, false, true},
      {"workspace over saved",
       workspace([](Call& c, float* at) {
         c.forward.saved = c.backward.saved = {at, 64};
       }),
       "workspace",
       {"`saved`"}},
      {"workspace of one byte over saved",
       [](Call& c) {
         c.options.workspace = {c.scratch + 512, 1};
         c.forward.saved = c.backward.saved = {c.scratch + 512, 64};
       },
       "workspace",
       {"`saved`", "1 bytes"}},
  });
  Call call;
  q(call, call.scratch + 512);
  call.options.workspace = below(call, 0);
  call.backward.saved = {call.scratch + 512, 64};  // read by backward, as q is
  EXPECT_NO_THROW(describe(call.forward, call.options));
  EXPECT_NO_THROW(describe(call.backward, call.options));
}

}  // namespace
}  // namespace fovea
