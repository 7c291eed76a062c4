// Identities that hold exactly, whatever the rounding, on every engine.
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/engines.h"
#include "reference/definition.h"

namespace fovea {
namespace {

constexpr const char* kShapes[] = {
    "b=1 hq=1 lq=1 d=8",
    "b=2 hq=3 lq=17 d=16",
    "b=1 hq=4 hkv=2 lq=65 d=40 mask=causal",
    "b=2 hq=2 hkv=1 lq=33 lk=130 d=64 mask=causal_bottom_right",
    "b=1 hq=2 lq=130 lk=33 d=72 mask=causal_top_left",
    "b=1 hq=7 hkv=1 lq=70 lk=300 d=128",
};

std::vector<std::string> lines(const std::string& more) {
  std::vector<std::string> all;
  for (const char* shape : kShapes) {
    for (const char* dtype : {"fp32", "bf16", "fp16"})
      all.push_back(std::string(shape) + " dtype=" + dtype + " " + more);
  }
  return all;
}

bool same_bits(const verification::HostTensor& a, const verification::HostTensor& b) {
  return a.view().buffer_bytes == b.view().buffer_bytes &&
         std::memcmp(a.view().data, b.view().data, static_cast<std::size_t>(a.view().buffer_bytes)) == 0;
}

TEST(Exact, ValuesOfOneGiveOne) {
  for (const std::string& line : lines("data=ones scale=0.3")) {
    for (const std::string& engine : engines()) {
      const core::Case c = core::parse_case(line);
      if (!takes(engine, c.problem)) continue;
      SCOPED_TRACE(engine + ": " + line);
      const auto tensors = solved_by(engine, c);
      const double ulp = 2 * verification::half_ulp(c.problem.dtype, 1.0);
      for (const float value : values_of(tensors.out.view())) EXPECT_NEAR(value, 1.0, 4 * ulp);
    }
  }
}

TEST(Exact, B27_OneHotValuesShowTheVisibleKeys) {
  for (const char* mask : {"none", "causal_top_left", "causal_bottom_right"}) {
    for (const char* lengths : {"lq=20 lk=37", "lq=37 lk=20", "lq=64 lk=64", "lq=1 lk=64", "lq=65 lk=63"}) {
      // Scale 0: all visible keys weigh the same, so column j of out is 1 / (visible keys) or exactly 0.
      const std::string line = "b=1 hq=2 d=64 dv=64 data=onehot scale=0 " + std::string(lengths) + " mask=" + mask;
      const core::Case c = core::parse_case(line);
      for (const std::string& engine : engines()) {
        if (!takes(engine, c.problem)) continue;
        SCOPED_TRACE(engine + ": " + line);
        const auto tensors = solved_by(engine, c);
        for (std::int64_t i = 0; i < c.problem.len_q; ++i) {
          int visible = 0;
          for (std::int64_t j = 0; j < c.problem.len_k; ++j) visible += reference::visible(c.problem, i, j) ? 1 : 0;
          for (std::int64_t j = 0; j < c.problem.len_k; ++j) {
            const bool seen = reference::visible(c.problem, i, j);
            EXPECT_NEAR(at(tensors.out.view(), 0, 1, i, j), seen ? 1.0 / visible : 0.0, seen ? 1e-7 : 0.0)
                << "row " << i << " key " << j;
          }
        }
      }
    }
  }
}

TEST(Exact, SmallIntegersWithEqualWeightsAreExact) {
  // Scale 0 and a power of two of keys: weights are 2^-n, sums of small integers are exact in every type.
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    const std::string line = "b=2 hq=3 lq=19 lk=64 d=16 dv=24 data=integers scale=0 dtype=" + std::string(dtype);
    const core::Case c = core::parse_case(line);
    for (const std::string& engine : engines()) {
      if (!takes(engine, c.problem)) continue;
      SCOPED_TRACE(engine + ": " + line);
      const auto tensors = solved_by(engine, c);
      for (std::int64_t h = 0; h < 3; ++h) {
        for (std::int64_t column = 0; column < 24; ++column) {
          float sum = 0;
          for (std::int64_t j = 0; j < 64; ++j) sum += at(tensors.v.view(), 1, h, j, column);
          EXPECT_EQ(at(tensors.out.view(), 1, h, 7, column), sum / 64);
        }
      }
    }
  }
}

// Grouped heads against the same keys and values repeated for every query head.
TEST(Exact, GroupedHeadsEqualExpandedHeads) {
  for (const char* ratio : {"hq=4 hkv=2", "hq=6 hkv=2", "hq=5 hkv=1", "hq=7 hkv=1", "hq=16 hkv=2"}) {
    const core::Case grouped =
        core::parse_case("pass=fwd b=2 lq=45 lk=70 d=24 dv=40 mask=causal_bottom_right " + std::string(ratio));
    core::Case expanded = grouped;
    expanded.problem.heads_kv = grouped.problem.heads_q;
    const std::int64_t group = grouped.problem.heads_q / grouped.problem.heads_kv;
    for (const std::string& engine : engines()) {
      if (!takes(engine, grouped.problem)) continue;
      SCOPED_TRACE(engine + " " + ratio);
      const auto few = solved_by(engine, grouped);
      auto many = verification::make_tensors(expanded);
      for (const auto& [from, to] : {std::pair{&few.k, &many.k}, {&few.v, &many.v}}) {
        for (std::int64_t b = 0; b < 2; ++b) {
          for (std::int64_t h = 0; h < expanded.problem.heads_kv; ++h) {
            for (std::int64_t j = 0; j < 70; ++j) {
              for (std::int64_t n = 0; n < to->view().sizes[3]; ++n)
                set(to->view(), b, h, j, n, at(from->view(), b, h / group, j, n));
            }
          }
        }
      }
      attention_forward(many.forward(), options_on(engine, expanded));
      EXPECT_TRUE(same_bits(few.out, many.out));
      EXPECT_TRUE(same_bits(few.lse, many.lse));
    }
  }
}

// What a row may not see does not change a bit of it.
TEST(Exact, B25_KeysBehindTheMaskDoNotInterfere) {
  for (const char* mask : {"causal_top_left", "causal_bottom_right"}) {
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      const std::string line =
          "pass=e2e b=1 hq=2 hkv=1 lq=90 lk=140 d=32 dtype=" + std::string(dtype) + " mask=" + mask;
      const core::Case c = core::parse_case(line);
      for (const std::string& engine : engines()) {
        if (!takes(engine, c.problem)) continue;
        SCOPED_TRACE(engine + ": " + line);
        const auto before = solved_by(engine, core::parse_case(line + " seed=0"));
        auto after = verification::make_tensors(c);
        const std::int64_t row = 41;  // rows up to this one must not notice
        for (std::int64_t j = 0; j < 140; ++j) {
          if (reference::visible(c.problem, row, j)) continue;
          for (std::int64_t n = 0; n < 32; ++n) {
            set(after.k.view(), 0, 0, j, n, 50.0f);
            set(after.v.view(), 0, 0, j, n, -3e4f);
          }
        }
        attention_forward(after.forward(), options_on(engine, c));
        for (std::int64_t h = 0; h < 2; ++h) {
          for (std::int64_t i = 0; i <= row; ++i) {
            EXPECT_EQ(at(before.lse.view(), 0, h, i, 0), at(after.lse.view(), 0, h, i, 0)) << i;
            for (std::int64_t n = 0; n < 32; ++n)
              ASSERT_EQ(at(before.out.view(), 0, h, i, n), at(after.out.view(), 0, h, i, n)) << i;
          }
        }
      }
    }
  }
}

// Attention over two halves of the keys, merged, is attention over all of them.
TEST(Exact, SplitKeysMergeToTheWhole) {
  for (const char* mask : {"none", "causal_bottom_right"}) {
    const core::Case whole = core::parse_case("b=2 hq=4 hkv=2 lq=40 lk=150 d=32 dv=24 mask=" + std::string(mask));
    for (const std::string& engine : engines()) {
      if (!takes(engine, whole.problem)) continue;
      SCOPED_TRACE(engine + " " + mask);
      auto tensors = verification::make_tensors(whole), parts = verification::make_tensors(whole);
      auto second = verification::make_tensors(whole);
      const std::int64_t cut = 70;
      // With the bottom-right mask every key before len_k - len_q is visible to all: the first part has no mask.
      ForwardTensors first = parts.forward(), last = second.forward();
      first.k.sizes[2] = first.v.sizes[2] = cut;
      for (TensorView* view : {&last.k, &last.v}) {
        view->data = static_cast<const float*>(view->data) + cut * view->strides[2];
        view->sizes[2] = 150 - cut;
        view->buffer_bytes = -1;
      }
      AttentionOptions open = options_on(engine, whole), masked = open;
      open.mask = Mask::none;
      attention_forward(first, open);
      attention_forward(last, masked);
      const PartialResult pieces[] = {{parts.out.view(), parts.lse.view()}, {second.out.view(), second.lse.view()}};
      merge_partials(pieces, tensors.out.view(), tensors.lse.view());
      const auto verdict = verification::check_forward(whole.problem, tensors.forward(), 1);
      EXPECT_TRUE(verdict.ok) << verdict.reason();
    }
  }
}

// Swapping batch elements swaps results to the bit; swapping keys changes them by rounding only.
TEST(Exact, PermutedBatchAndKeys) {
  const core::Case c = core::parse_case("pass=e2e b=3 hq=2 lq=30 lk=77 d=20");
  for (const std::string& engine : engines()) {
    if (!takes(engine, c.problem)) continue;
    SCOPED_TRACE(engine);
    const auto straight = solved_by(engine, c);
    auto swapped = verification::make_tensors(c), reversed = verification::make_tensors(c);
    for (const auto& [from, batch, keys] : {std::tuple{&straight.q, &swapped.q, &reversed.q},
                                            {&straight.k, &swapped.k, &reversed.k},
                                            {&straight.v, &swapped.v, &reversed.v}}) {
      for (std::int64_t b = 0; b < 3; ++b) {
        for (std::int64_t h = 0; h < 2; ++h) {
          for (std::int64_t j = 0; j < from->view().sizes[2]; ++j) {
            const std::int64_t other = from == &straight.q ? j : 76 - j;
            for (std::int64_t n = 0; n < 20; ++n) {
              set(batch->view(), 2 - b, h, j, n, at(from->view(), b, h, j, n));
              set(keys->view(), b, h, other, n, at(from->view(), b, h, j, n));
            }
          }
        }
      }
    }
    attention_forward(swapped.forward(), options_on(engine, c));
    attention_forward(reversed.forward(), options_on(engine, c));
    for (std::int64_t b = 0; b < 3; ++b) {
      for (std::int64_t i = 0; i < 30; ++i) {
        for (std::int64_t n = 0; n < 20; ++n) {
          EXPECT_EQ(at(straight.out.view(), b, 1, i, n), at(swapped.out.view(), 2 - b, 1, i, n));
        }
      }
    }
    ForwardTensors answer = straight.forward();
    answer.out = reversed.out.view();
    answer.lse = reversed.lse.view();
    const auto verdict = verification::check_forward(c.problem, answer, 1);
    EXPECT_TRUE(verdict.ok) << verdict.reason();
  }
}

// Zero columns appended to q and k (and the scale kept) change no score.
TEST(Exact, ZeroColumnsChangeNothing) {
  const core::Case narrow = core::parse_case("b=1 hq=2 lq=50 lk=66 d=24 dv=16 scale=0.25"),
                   wide = core::parse_case("b=1 hq=2 lq=50 lk=66 d=40 dv=16 scale=0.25");
  for (const std::string& engine : engines()) {
    if (!takes(engine, narrow.problem) || !takes(engine, wide.problem)) continue;
    SCOPED_TRACE(engine);
    const auto few = solved_by(engine, narrow);
    auto many = verification::make_tensors(wide);
    for (const auto& [from, to] : {std::pair{&few.q, &many.q}, {&few.k, &many.k}, {&few.v, &many.v}}) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t j = 0; j < from->view().sizes[2]; ++j) {
          for (std::int64_t n = 0; n < to->view().sizes[3]; ++n)
            set(to->view(), 0, h, j, n, n < from->view().sizes[3] ? at(from->view(), 0, h, j, n) : 0.0f);
        }
      }
    }
    attention_forward(many.forward(), options_on(engine, wide));
    ForwardTensors answer = few.forward();
    answer.out = many.out.view();
    answer.lse = many.lse.view();
    const auto verdict = verification::check_forward(narrow.problem, answer, 1);
    EXPECT_TRUE(verdict.ok) << verdict.reason();
  }
}

// Gradients of keys that are split over two calls: the lse of the whole and delta given from outside.
TEST(Exact, SplitBackwardAccumulatesToTheWhole) {
  const core::Case whole = core::parse_case("pass=e2e b=1 hq=4 hkv=2 lq=40 lk=96 d=32 dv=16");
  for (const std::string& engine : engines()) {
    if (!takes(engine, backward_of(whole.problem))) continue;
    SCOPED_TRACE(engine);
    const auto tensors = solved_by(engine, whole);
    auto split = verification::make_tensors(whole);
    for (const auto* gradient : {&split.dq, &split.dk, &split.dv})
      std::memset(gradient->view().data, 0, static_cast<std::size_t>(gradient->view().buffer_bytes));
    for (const std::int64_t start : {0, 48}) {
      BackwardTensors part = tensors.backward();
      part.dq = split.dq.view();
      part.dk = split.dk.view();
      part.dv = split.dv.view();
      part.accumulate = true;
      const auto slice = [start](auto view) {
        using Element =
            std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>, const float, float>;
        view.data = static_cast<Element*>(view.data) + start * view.strides[2];
        view.sizes[2] = 48;
        view.buffer_bytes = -1;
        return view;
      };
      part.k = slice(part.k);
      part.v = slice(part.v);
      part.dk = slice(part.dk);
      part.dv = slice(part.dv);
      attention_backward(part, options_on(engine, whole));
    }
    BackwardTensors answer = tensors.backward();
    answer.dq = split.dq.view();
    answer.dk = split.dk.view();
    answer.dv = split.dv.view();
    const auto verdict = verification::check_backward(backward_of(whole.problem), answer, 1);
    EXPECT_TRUE(verdict.ok) << verdict.reason();
  }
}

}  // namespace
}  // namespace fovea
