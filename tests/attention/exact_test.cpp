// Identities that hold exactly, whatever the rounding, on every engine.
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/engines.h"
#include "attention/reference/head.h"

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

// out is divided by the sum of the very probabilities that multiplied the values, rounded to bf16 or not.
TEST(Exact, ValuesOfOneGiveOne) {
  for (const std::string& line : lines("data=ones scale=0.3")) {
    for (const std::string& engine : engines()) {
      const verification::AttentionCase c = verification::attention_case(line);
      if (!takes(engine, c.problem)) continue;
      SCOPED_TRACE(engine + ": " + line);
      const auto tensors = solved_by(engine, c);
      for (const float value : values_of(tensors.out.view())) EXPECT_EQ(value, 1.0f);
    }
  }
}

TEST(Exact, ValuesOfOneGiveOneInFp32OutputsOfBf16) {
  for (const char* shape : kShapes) {
    for (const std::string& engine : engines()) {
      verification::AttentionCase c =
          verification::attention_case(std::string(shape) + " dtype=bf16 data=ones scale=0.3");
      c.problem.result_dtype = DType::fp32;
      if (!takes(engine, c.problem)) continue;
      SCOPED_TRACE(engine + ": " + shape);
      const auto tensors = solved_by(engine, c);
      for (const float value : values_of(tensors.out.view())) EXPECT_EQ(value, 1.0f);
    }
  }
}

TEST(Exact, OneHotValuesShowTheVisibleKeys) {
  for (const char* mask : {"none", "causal_top_left", "causal_bottom_right"}) {
    for (const char* lengths : {"lq=20 lk=37", "lq=37 lk=20", "lq=64 lk=64", "lq=1 lk=64", "lq=65 lk=63"}) {
      // Scale 0: all visible keys weigh the same, so column j of out is 1 / (visible keys) or exactly 0.
      const std::string line = "b=1 hq=2 d=64 dv=64 data=onehot scale=0 " + std::string(lengths) + " mask=" + mask;
      const verification::AttentionCase c = verification::attention_case(line);
      for (const std::string& engine : engines()) {
        if (!takes(engine, c.problem)) continue;
        SCOPED_TRACE(engine + ": " + line);
        const auto tensors = solved_by(engine, c);
        for (std::int64_t i = 0; i < c.problem.len_q; ++i) {
          int visible = 0;
          for (std::int64_t j = 0; j < c.problem.len_k; ++j) visible += reference::visible(c.problem, i, j) ? 1 : 0;
          for (std::int64_t j = 0; j < c.problem.len_k; ++j) {
            const bool seen = reference::visible(c.problem, i, j);
            // exp(score - maximum) is 1 for each key, so their sum is exact. Two roundings: its reciprocal, and the
            // product.
            const double wanted = seen ? 1.0 / visible : 0.0;
            EXPECT_NEAR(at(tensors.out.view(), 0, 1, i, j), wanted, 2 * 0x1p-24 * wanted)
                << "row " << i << " key " << j;
          }
        }
      }
    }
  }
}

TEST(Exact, SmallIntegersWithEqualProbabilitiesAreExact) {
  // Scale 0 and a power of two of keys: P is 2^-n, and sums of small integers are exact in every type.
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    const std::string line = "b=2 hq=3 lq=19 lk=64 d=16 dv=24 data=integers scale=0 dtype=" + std::string(dtype);
    const verification::AttentionCase c = verification::attention_case(line);
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

// Scale 0 and two keys: column n of out is the mean of two neighbours, 1 + n ulp and 1 + (n + 1) ulp.
TEST(Exact, AMeanHalfwayBetweenTwoNumbersIsTheEvenOne) {
  for (const auto& c : verification::attention_sweep("lq=2,20 lk=2 d=17 scale=0 dtype=bf16,fp16")) {
    const float ulp = c.problem.dtype == DType::bf16 ? 0x1p-7f : 0x1p-10f;
    for (const std::string& engine : engines()) {
      if (!takes(engine, c.problem)) continue;
      SCOPED_TRACE(engine + ": " + verification::line_of(c));
      const verification::CaseTensors tensors = verification::make_tensors(c);
      for (int n = 0; n < 17; ++n) {
        for (const int key : {0, 1}) set(tensors.v.view(), 0, 0, key, n, 1.0f + static_cast<float>(n + key) * ulp);
      }
      attention_forward(tensors.forward(), options_on(engine, c));
      for (int n = 0; n < 17; ++n)
        EXPECT_EQ(at(tensors.out.view(), 0, 0, 1, n), 1.0f + static_cast<float>(n + n % 2) * ulp) << n;
    }
  }
}

// A tensor of `from`'s key heads repeated for every query head.
void expand(const verification::HostTensor& from, const verification::HostTensor& to, std::int64_t group) {
  const Sizes& sizes = to.view().sizes;
  for (std::int64_t b = 0; b < sizes[0]; ++b) {
    for (std::int64_t h = 0; h < sizes[1]; ++h) {
      for (std::int64_t j = 0; j < sizes[2]; ++j) {
        for (std::int64_t n = 0; n < sizes[3]; ++n) set(to.view(), b, h, j, n, at(from.view(), b, h / group, j, n));
      }
    }
  }
}

// The reverse for gradients: the sum over the query heads of a group.
void sum_groups(const verification::HostTensor& from, const verification::HostTensor& to, std::int64_t group) {
  const Sizes& sizes = to.view().sizes;
  for (std::int64_t b = 0; b < sizes[0]; ++b) {
    for (std::int64_t h = 0; h < sizes[1]; ++h) {
      for (std::int64_t j = 0; j < sizes[2]; ++j) {
        for (std::int64_t n = 0; n < sizes[3]; ++n) {
          double sum = 0;
          for (std::int64_t g = 0; g < group; ++g) sum += at(from.view(), b, h * group + g, j, n);
          set(to.view(), b, h, j, n, static_cast<float>(sum));
        }
      }
    }
  }
}

// Grouped heads against the same keys and values repeated for every query head: the same bits of out, lse and dq; dk
// and dv are the sums over the groups, to the bit where every number is a small multiple of a power of two.
void expect_grouped_is_expanded(const std::string& engine, const verification::AttentionCase& grouped,
                                bool sums_are_exact) {
  verification::AttentionCase expanded = grouped;
  expanded.problem.heads_kv = grouped.problem.heads_q;
  const std::int64_t group = grouped.problem.heads_q / grouped.problem.heads_kv;
  const auto few = verification::make_tensors(grouped, DType::fp32);
  const auto many = verification::make_tensors(expanded, DType::fp32);
  const auto sums = verification::make_tensors(grouped, DType::fp32);
  expand(few.k, many.k, group);
  expand(few.v, many.v, group);
  for (const auto& [tensors, c] : {std::pair{&few, &grouped}, {&many, &expanded}}) {
    attention_forward(tensors->forward(), options_on(engine, *c));
    attention_backward(tensors->backward(), options_on(engine, *c));
  }
  EXPECT_TRUE(same_bits(few.out, many.out));
  EXPECT_TRUE(same_bits(few.lse, many.lse));
  EXPECT_TRUE(same_bits(few.dq, many.dq));
  sum_groups(many.dk, sums.dk, group);
  sum_groups(many.dv, sums.dv, group);
  if (sums_are_exact && engine != "reference") {  // the reference recomputes P from a rounded lse
    EXPECT_EQ(values_of(few.dk.view()), values_of(sums.dk.view()));
    EXPECT_EQ(values_of(few.dv.view()), values_of(sums.dv.view()));
  }
  BackwardTensors answer = few.backward();
  answer.dk = sums.dk.view();
  answer.dv = sums.dv.view();
  AttentionProblem problem = backward_of(grouped.problem);
  problem.result_dtype = DType::fp32;
  const auto verdict = verification::check_backward(problem, answer, 1);
  EXPECT_TRUE(verdict.ok) << verdict.reason();
}

TEST(Exact, GroupedHeadsEqualExpandedHeads) {
  for (const char* ratio : {"hq=4 hkv=2", "hq=6 hkv=2", "hq=5 hkv=1", "hq=7 hkv=1", "hq=16 hkv=2"}) {
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      for (const bool exact : {false, true}) {
        const verification::AttentionCase c = verification::attention_case(
            std::string(exact ? "lq=45 lk=64 data=integers scale=0 " : "lq=45 lk=70 mask=causal_bottom_right ") +
            "pass=e2e b=2 d=24 dv=40 " + ratio + " dtype=" + dtype);
        for (const std::string& engine : engines()) {
          if (!takes(engine, c.problem) || !takes(engine, backward_of(c.problem))) continue;
          SCOPED_TRACE(engine + ": " + verification::line_of(c));
          expect_grouped_is_expanded(engine, c, exact);
        }
      }
    }
  }
}

bool same_rows(const MutableTensorView& a, const MutableTensorView& b, std::int64_t first, std::int64_t end) {
  for (std::int64_t h = 0; h < a.sizes[1]; ++h) {
    for (std::int64_t i = first; i < end; ++i) {
      for (std::int64_t n = 0; n < a.sizes[3]; ++n) {
        if (at(a, 0, h, i, n) != at(b, 0, h, i, n)) return false;
      }
    }
  }
  return true;
}

void fill_rows(const MutableTensorView& view, std::int64_t first, std::int64_t end, float value) {
  for (std::int64_t h = 0; h < view.sizes[1]; ++h) {
    for (std::int64_t i = first; i < end; ++i) {
      for (std::int64_t n = 0; n < view.sizes[3]; ++n) set(view, 0, h, i, n, value);
    }
  }
}

// What a row may not see does not change a bit of it: neither keys of its out, lse and dq, nor queries of a key's dk
// and dv.
TEST(Exact, HiddenKeysDoNotChangeResults) {
  constexpr std::int64_t kRow = 41;  // rows up to this one do not see keys from `hidden` on
  for (const char* mask : {"causal_top_left", "causal_bottom_right"}) {
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      const verification::AttentionCase c = verification::attention_case(
          "pass=e2e b=1 hq=2 hkv=1 lq=90 lk=140 d=32 dtype=" + std::string(dtype) + " mask=" + mask);
      std::int64_t hidden = 0;
      while (reference::visible(c.problem, kRow, hidden)) ++hidden;
      for (const std::string& engine : engines()) {
        if (!takes(engine, c.problem) || !takes(engine, backward_of(c.problem))) continue;
        SCOPED_TRACE(engine + ": " + verification::line_of(c));
        const auto before = solved_by(engine, c);
        const auto other_keys = verification::make_tensors(c), other_queries = verification::make_tensors(c);
        fill_rows(other_keys.k.view(), hidden, 140, 50.0f);
        fill_rows(other_keys.v.view(), hidden, 140, -3e4f);
        fill_rows(other_queries.q.view(), 0, kRow + 1, 30.0f);
        fill_rows(other_queries.dout.view(), 0, kRow + 1, -500.0f);
        for (const auto* after : {&other_keys, &other_queries}) {
          attention_forward(after->forward(), options_on(engine, c));
          attention_backward(after->backward(), options_on(engine, c));
        }
        EXPECT_TRUE(same_rows(before.lse.view(), other_keys.lse.view(), 0, kRow + 1));
        EXPECT_TRUE(same_rows(before.out.view(), other_keys.out.view(), 0, kRow + 1));
        EXPECT_TRUE(same_rows(before.dq.view(), other_keys.dq.view(), 0, kRow + 1));
        EXPECT_TRUE(same_rows(before.dk.view(), other_queries.dk.view(), hidden, 140));
        EXPECT_TRUE(same_rows(before.dv.view(), other_queries.dv.view(), hidden, 140));
        EXPECT_FALSE(same_rows(before.dq.view(), other_keys.dq.view(), kRow + 1, 90)) << "nothing was changed";
        EXPECT_FALSE(same_rows(before.dk.view(), other_queries.dk.view(), 0, hidden)) << "nothing was changed";
      }
    }
  }
}

// Attention over two halves of the keys, merged, is attention over all of them.
TEST(Exact, SplitKeysMergeToTheWhole) {
  for (const char* mask : {"none", "causal_bottom_right"}) {
    const verification::AttentionCase whole =
        verification::attention_case("b=2 hq=4 hkv=2 lq=40 lk=150 d=32 dv=24 mask=" + std::string(mask));
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
  const verification::AttentionCase c = verification::attention_case("pass=e2e b=3 hq=2 lq=30 lk=77 d=20");
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
  const verification::AttentionCase narrow = verification::attention_case("b=1 hq=2 lq=50 lk=66 d=24 dv=16 scale=0.25"),
                                    wide = verification::attention_case("b=1 hq=2 lq=50 lk=66 d=40 dv=16 scale=0.25");
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
  const verification::AttentionCase whole =
      verification::attention_case("pass=e2e b=1 hq=4 hkv=2 lq=40 lk=96 d=32 dv=16");
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
