// The reference itself: masks against written-out matrices, results known by hand, gradients by central differences.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "attention/mask.h"
#include "attention/reference/head.h"
#include "core/random.h"

namespace fovea {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string matrix(const Mask& mask, std::int64_t len_q, std::int64_t len_k) {
  const AttentionProblem problem{.len_q = len_q, .len_k = len_k, .mask = mask};
  std::string text;
  for (std::int64_t i = 0; i < len_q; ++i) {
    for (std::int64_t j = 0; j < len_k; ++j) text += reference::visible(problem, i, j) ? '1' : '0';
    text += ' ';
  }
  return text;
}

TEST(Reference, MasksEqualWrittenOutMatrices) {
  EXPECT_EQ(matrix(Mask::causal, 3, 3), "100 110 111 ");
  EXPECT_EQ(matrix(Mask::causal_top_left, 2, 5), "10000 11000 ");
  EXPECT_EQ(matrix(Mask::causal_bottom_right, 2, 5), "11110 11111 ");
  EXPECT_EQ(matrix(Mask::causal_top_left, 5, 2), "10 11 11 11 11 ");
  EXPECT_EQ(matrix(Mask::causal_bottom_right, 5, 2), "00 00 00 10 11 ");
}

TEST(Reference, WindowsEqualWrittenOutMatrices) {
  constexpr std::int64_t kAll = Mask::kUnlimited;
  EXPECT_EQ(matrix(Mask::window(1, 0), 4, 4), "1000 1100 0110 0011 ");
  EXPECT_EQ(matrix(Mask::window(0, 0), 3, 3), "100 010 001 ");
  EXPECT_EQ(matrix(Mask::window(0, 1), 3, 3), "110 011 001 ");
  EXPECT_EQ(matrix(Mask::window(1, kAll), 4, 4), "1111 1111 0111 0011 ");
  EXPECT_EQ(matrix(Mask::window(kAll, 1), 4, 4), "1100 1110 1111 1111 ");
  EXPECT_EQ(matrix(Mask::window_top_left(1, 0), 5, 2), "10 11 01 00 00 ");
  EXPECT_EQ(matrix(Mask::window_top_left(1, 1), 2, 5), "11000 11100 ");
  EXPECT_EQ(matrix(Mask::window_bottom_right(1, 0), 2, 5), "00110 00011 ");
  EXPECT_EQ(matrix(Mask::window_bottom_right(0, 1), 5, 2), "00 00 10 11 01 ");
  EXPECT_EQ(matrix(Mask::window_bottom_right(Mask::kLargestBound, 0), 2, 3), "110 111 ");
}

std::vector<Mask> masks_around(std::int64_t length) {
  std::vector<Mask> masks{Mask::none, Mask::causal, Mask::causal_top_left, Mask::causal_bottom_right};
  for (const Mask::Alignment alignment :
       {Mask::Alignment::equal_lengths, Mask::Alignment::top_left, Mask::Alignment::bottom_right}) {
    for (const std::int64_t left : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, length - 1, length, length + 1,
                                    Mask::kLargestBound, Mask::kUnlimited}) {
      for (const std::int64_t right : {std::int64_t{0}, std::int64_t{2}, length, Mask::kLargestBound})
        masks.push_back({alignment, left, right});
      if (left != Mask::kUnlimited) masks.push_back({alignment, left, Mask::kUnlimited});
    }
  }
  return masks;
}

// Pairs on which the reference and an interval of keys disagree.
std::int64_t differences(const AttentionProblem& problem, const KeyWindow& window) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < problem.len_q; ++i) {
    for (std::int64_t j = 0; j < problem.len_k; ++j) {
      const bool inside = j >= i + window.begin && j < i + window.end;
      count += reference::visible(problem, i, j) != inside ? 1 : 0;
    }
  }
  return count;
}

// An interval that is wrong by one key at either end, in either direction, must not pass the comparison below.
TEST(Reference, DiffersFromAnIntervalThatIsWrongByOneKey) {
  for (const Mask& mask : {Mask::window(3, 0), Mask::window_top_left(2, 1), Mask::window_bottom_right(2, 1),
                           Mask::window_bottom_right(0, 0), Mask::window_top_left(0, 3)}) {
    for (const auto& [len_q, len_k] : {std::pair<std::int64_t, std::int64_t>{8, 8}, {8, 6}, {6, 8}}) {
      if (mask.alignment == Mask::Alignment::equal_lengths && len_q != len_k) continue;
      const AttentionProblem problem{.len_q = len_q, .len_k = len_k, .mask = mask};
      const auto [begin, end] = key_window(problem);
      EXPECT_EQ(differences(problem, {begin, end}), 0);
      for (const std::int64_t wrong : {-1, 1}) {
        EXPECT_GT(differences(problem, {begin + wrong, end}), 0) << core::text_of(mask) << " begin " << wrong;
        EXPECT_GT(differences(problem, {begin, end + wrong}), 0) << core::text_of(mask) << " end " << wrong;
      }
    }
  }
}

// A mistake in the interval that kernels read must not be in what judges them.
TEST(Reference, SharesNoMaskCode) {
  for (std::int64_t len_q = 0; len_q < 9; ++len_q) {
    for (std::int64_t len_k = 0; len_k < 9; ++len_k) {
      for (const Mask& mask : masks_around(len_k)) {
        if (mask.alignment == Mask::Alignment::equal_lengths && len_q != len_k) continue;
        const AttentionProblem problem{.len_q = len_q, .len_k = len_k, .mask = mask};
        EXPECT_EQ(differences(problem, key_window(problem)), 0) << core::text_of(mask) << " " << len_q << " " << len_k;
        std::int64_t pairs = 0;
        for (const char pair : matrix(mask, len_q, len_k)) pairs += pair == '1' ? 1 : 0;
        EXPECT_EQ(pairs, visible_pairs(problem)) << core::text_of(mask) << " " << len_q << " " << len_k;
      }
    }
  }
  for (const char* folder : {"attention/reference", "verification"}) {
    for (const auto& file :
         std::filesystem::recursive_directory_iterator(FOVEA_SOURCE_DIR "/src/" + std::string(folder))) {
      if (!file.is_regular_file()) continue;
      std::ifstream stream(file.path());
      const std::string text{std::istreambuf_iterator<char>(stream), {}};
      EXPECT_FALSE(text.empty()) << file.path();
      for (const char* word : {"key_window", "KeyWindow", "visible_pairs"})
        EXPECT_EQ(text.find(word), std::string::npos) << file.path() << " uses " << word;
    }
  }
}

struct Tensors {
  explicit Tensors(const AttentionProblem& p, std::uint64_t seed = 1) : problem(p) {
    const Sizes q{p.batch, p.heads_q, p.len_q, p.dim_qk}, k{p.batch, p.heads_kv, p.len_k, p.dim_qk},
        v{p.batch, p.heads_kv, p.len_k, p.dim_v}, o{p.batch, p.heads_q, p.len_q, p.dim_v};
    const std::array sizes{q, k, v, o};
    for (std::size_t t = 0; t < 4; ++t) {
      values[t].resize(static_cast<std::size_t>(sizes[t][0] * sizes[t][1] * sizes[t][2] * sizes[t][3]));
      for (std::size_t n = 0; n < values[t].size(); ++n)
        values[t][n] = core::approximate_normal(core::philox(seed, t, n));
    }
    backward.q = contiguous(values[0].data(), q);
    backward.k = contiguous(values[1].data(), k);
    backward.v = contiguous(values[2].data(), v);
    backward.dout = contiguous(values[3].data(), o);
  }

  // sum over everything of dout * out, the loss whose gradients backward gives.
  double loss() const {
    std::vector<double> memory(static_cast<std::size_t>(reference::Head::doubles(problem))), out(problem.dim_v);
    double sum = 0;
    std::size_t at = 0;
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      for (std::int64_t h = 0; h < problem.heads_q; ++h) {
        const reference::Head head(problem, ForwardTensors{.q = backward.q, .k = backward.k, .v = backward.v}, b, h,
                                   memory.data());
        for (std::int64_t i = 0; i < problem.len_q; ++i) {
          head.forward_row(i, out.data());
          for (const double value : out) sum += values[3][at++] * value;
        }
      }
    }
    return sum;
  }

  AttentionProblem problem;
  std::array<std::vector<float>, 4> values;  // q k v dout
  BackwardTensors backward;                  // without lse, out and delta: the reference computes them
};

struct Gradients {
  std::vector<double> dq, dk, dv;
};

Gradients gradients(const Tensors& t) {
  const AttentionProblem& p = t.problem;
  Gradients g{std::vector<double>(t.values[0].size()), std::vector<double>(t.values[1].size()),
              std::vector<double>(t.values[2].size())};
  std::vector<double> memory(static_cast<std::size_t>(reference::Head::doubles(p)));
  const std::int64_t group = p.heads_q / p.heads_kv;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      const reference::Head head(p, t.backward, b, h, memory.data());
      const std::int64_t rows = (b * p.heads_q + h) * p.len_q, keys = (b * p.heads_kv + h / group) * p.len_k;
      for (std::int64_t i = 0; i < p.len_q; ++i) head.query_gradient(i, &g.dq[(rows + i) * p.dim_qk]);
      for (std::int64_t j = 0; j < p.len_k; ++j)
        head.add_key_gradients(j, &g.dk[(keys + j) * p.dim_qk], &g.dv[(keys + j) * p.dim_v]);
    }
  }
  return g;
}

// The differences' own error is a sixth of the third derivative times step^2; the loss is smooth and of order 10, its
// third derivative at most ten times that.
void expect_central_differences(const AttentionProblem& problem) {
  constexpr float kStep = 0x1p-10f;
  Tensors t(problem);
  const Gradients g = gradients(t);
  const std::array expected{&g.dq, &g.dk, &g.dv};
  for (std::size_t tensor = 0; tensor < 3; ++tensor) {
    for (std::size_t n = 0; n < t.values[tensor].size(); ++n) {
      float& value = t.values[tensor][n];
      const float before = value;
      const float above = before + kStep, below = before - kStep;
      value = above;
      const double loss_above = t.loss();
      value = below;
      const double loss_below = t.loss();
      value = before;
      const double difference = (loss_above - loss_below) / (static_cast<double>(above) - below);
      EXPECT_NEAR((*expected[tensor])[n], difference, 100.0 / 6 * kStep * kStep)
          << "tensor " << tensor << " element " << n;
    }
  }
}

TEST(Reference, GradientsAreTheCentralDifferences) {
  for (const Mask& mask : {Mask::none, Mask::causal_top_left, Mask::causal_bottom_right, Mask::window_top_left(1, 0),
                           Mask::window_bottom_right(0, 1)}) {
    for (const auto& [len_q, len_k] : {std::pair<std::int64_t, std::int64_t>{3, 5}, {5, 3}, {1, 4}, {4, 1}}) {
      AttentionProblem p{
          .pass = Pass::backward, .batch = 2, .heads_q = 2, .heads_kv = 1, .len_q = len_q, .len_k = len_k};
      p.dim_qk = 3;
      p.dim_v = 2;
      p.mask = mask;
      p.scale = 0.7;
      expect_central_differences(p);
      p.scale = -0.7;
      expect_central_differences(p);
    }
  }
}

TEST(Reference, OneKeyGivesItsValueAndItsScore) {
  const AttentionProblem p{.len_q = 2, .len_k = 1, .dim_qk = 2, .dim_v = 3, .scale = 0.5};
  const Tensors t(p);
  std::vector<double> memory(static_cast<std::size_t>(reference::Head::doubles(p))), out(3);
  const reference::Head head(p, ForwardTensors{.q = t.backward.q, .k = t.backward.k, .v = t.backward.v}, 0, 0,
                             memory.data());
  for (std::int64_t i = 0; i < 2; ++i) {
    const double lse = head.forward_row(i, out.data());
    const auto& q = t.values[0];
    const auto& k = t.values[1];
    EXPECT_DOUBLE_EQ(lse, 0.5 * (double{q[2 * i]} * k[0] + double{q[2 * i + 1]} * k[1]));
    for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(out[c], t.values[2][c]);
  }
}

TEST(Reference, EqualScoresGiveTheMeanAndTheLogarithmOfTheCount) {
  AttentionProblem p{.len_q = 1, .len_k = 4, .dim_qk = 2, .dim_v = 1, .scale = 0.0};
  const Tensors t(p);
  std::vector<double> memory(static_cast<std::size_t>(reference::Head::doubles(p)));
  const reference::Head head(p, ForwardTensors{.q = t.backward.q, .k = t.backward.k, .v = t.backward.v}, 0, 0,
                             memory.data());
  double out = 0;
  EXPECT_DOUBLE_EQ(head.forward_row(0, &out), std::log(4.0));
  const auto& v = t.values[2];
  // Four probabilities, four products and three sums, each rounded once, and the logarithm in every probability.
  const double size = std::abs(v[0]) + std::abs(v[1]) + std::abs(v[2]) + std::abs(v[3]);
  EXPECT_NEAR(out, (double{v[0]} + v[1] + v[2] + v[3]) / 4, 12 * 0x1p-53 * size);
}

TEST(Reference, FullyMaskedRowsAreZeroAndGiveNoGradient) {
  AttentionProblem p{.len_q = 3, .len_k = 1, .dim_qk = 2, .dim_v = 2, .mask = Mask::causal_bottom_right};
  Tensors t(p);
  t.values[0][0] = t.values[3][1] = std::numeric_limits<float>::quiet_NaN();  // in rows that see nothing
  std::vector<float> out(6, 7.0f), lse(3, 7.0f), dq(6, 7.0f), dk(2, 7.0f), dv(2, 7.0f);
  const AttentionOptions options{.mask = p.mask, .scale = 1.0, .implementation = "reference"};
  attention_forward({.q = t.backward.q,
                     .k = t.backward.k,
                     .v = t.backward.v,
                     .out = contiguous(out.data(), {1, 1, 3, 2}),
                     .lse = contiguous(lse.data(), {1, 1, 3, 1})},
                    options);
  EXPECT_EQ(out, (std::vector<float>{0, 0, 0, 0, t.values[2][0], t.values[2][1]}));
  EXPECT_EQ(lse[0], -kInfinity);
  EXPECT_EQ(lse[1], -kInfinity);
  t.backward.out = contiguous(out.data(), {1, 1, 3, 2});
  t.backward.lse = contiguous(lse.data(), {1, 1, 3, 1});
  t.backward.dq = contiguous(dq.data(), {1, 1, 3, 2});
  t.backward.dk = contiguous(dk.data(), {1, 1, 1, 2});
  t.backward.dv = contiguous(dv.data(), {1, 1, 1, 2});
  attention_backward(t.backward, options);
  for (std::size_t n = 0; n < 4; ++n) EXPECT_EQ(dq[n], 0.0f);
  EXPECT_EQ(dv[0], t.values[3][4]);  // the one visible pair has probability 1
  EXPECT_EQ(dv[1], t.values[3][5]);
  for (const float value : dk) EXPECT_EQ(value, 0.0f);  // dP and delta are the same sum
}

}  // namespace
}  // namespace fovea
