// The reference of layers: a layer written out by hand, gradients by central differences, and identities between kinds.
#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "verification/layers/evaluation.h"

namespace fovea::verification {
namespace {

enum class Rows { plain, transformed, shared_key };

LayerProblem small_problem(LayerKind kind, bool cross, Rows rows = Rows::plain) {
  LayerProblem p{.kind = kind, .pass = Pass::backward, .batch = 2, .len_q = 3, .len_k = cross ? 4 : 3};
  p.width = 3, p.width_kv = cross ? 5 : 3;
  p.heads_q = 2, p.heads_kv = kind == LayerKind::gqa || kind == LayerKind::mqa ? 1 : 2;
  p.dim_qk = 2, p.dim_v = kind == LayerKind::mha_fused ? 2 : 3;
  if (kind == LayerKind::mla) p.latent_q = 2, p.latent_kv = 4;
  p.mask = Mask::causal_bottom_right;
  p.scale = 0.7;
  p.cross = cross;
  if (rows == Rows::plain) return p;
  p.dim_qk = 4;
  if (kind == LayerKind::mha_fused) p.dim_v = 4;
  p.rotary = Rotary{.theta = 7, .columns = rows == Rows::shared_key ? 2 : 4, .position_q = 2, .position_k = 1};
  if (cross) p.rotary->pairs = RotaryPairs::halves;
  p.dim_shared = rows == Rows::shared_key ? 2 : 0;
  p.norms.q.given = p.norms.k.given = rows == Rows::transformed;
  p.norms.q_latent.given = p.norms.kv_latent.given = kind == LayerKind::mla;
  p.epsilon = 0.125;
  return p;
}

// Multiples of 2^-8 below 1, so that small steps are exact.
Matrix<float> filled(std::int64_t rows, std::int64_t columns, std::uint64_t stream) {
  Matrix<float> m(rows, columns);
  for (std::size_t n = 0; n < m.values.size(); ++n)
    m.values[n] = static_cast<float>(static_cast<int>(core::philox(5, stream, n)[0] % 511) - 255) / 256.0f;
  return m;
}

LayerInputs inputs_for(const LayerProblem& p) {
  LayerInputs inputs{filled(p.batch * p.len_q, p.width, 1), {}, filled(p.batch * p.len_q, p.width, 2), {}, {}};
  if (p.cross) inputs.x_kv = filled(p.batch * p.len_k, p.width_kv, 3);
  const PerProjection<Sizes> sizes = weight_sizes(p);
  std::uint64_t stream = 4;
  for (const Step& step : steps_of(p)) {
    const Sizes& one = at(sizes, step.part);
    at(inputs.weight, step.part) = filled(one[2], one[3], stream++);
    at(inputs.bias, step.part) = filled(1, one[2], stream++);
  }
  const PerNorm<Sizes> norms = norm_sizes(p);
  for (const NormPart part : kNormParts) {
    if (at(p.norms, part).given) at(inputs.norm, part) = filled(1, at(norms, part)[3], stream++);
  }
  return inputs;
}

LayerValues<ExactArithmetic> exact(const LayerProblem& p, const LayerInputs& inputs) {
  return {p, std::make_shared<const LayerInputs>(inputs), ExactArithmetic()};
}

double loss(const LayerProblem& p, const LayerInputs& inputs) {
  auto values = exact(p, inputs);
  const Matrix<double>& y = values.activation(Activation::y);
  double sum = 0;
  for (std::size_t n = 0; n < y.values.size(); ++n) sum += y.values[n] * static_cast<double>(inputs.dy.values[n]);
  return sum;
}

// Compares the gradient of one input with central differences of the loss.
void check_gradient(const LayerProblem& p, LayerInputs& inputs, Matrix<float>& input, const Matrix<double>& gradient,
                    const std::string& name) {
  constexpr float kStep = 0x1p-12f;
  ASSERT_EQ(gradient.values.size(), input.values.size()) << name;
  for (std::size_t n = 0; n < input.values.size(); ++n) {
    const float at = input.values[n];
    input.values[n] = at + kStep;
    const double above = loss(p, inputs);
    input.values[n] = at - kStep;
    const double below = loss(p, inputs);
    input.values[n] = at;
    // The difference's own error is the third derivative times the step's square, 6e-8.
    EXPECT_NEAR(gradient.values[n], (above - below) / (2 * static_cast<double>(kStep)), 1e-5) << name << " " << n;
  }
}

class LayerReference : public testing::TestWithParam<std::tuple<LayerKind, bool, Rows>> {};

TEST_P(LayerReference, GradientsAreTheDerivatives) {
  const auto [kind, cross, rows] = GetParam();
  const LayerProblem p = small_problem(kind, cross, rows);
  LayerInputs inputs = inputs_for(p);
  auto values = exact(p, inputs);
  check_gradient(p, inputs, inputs.x, values.gradient(Activation::x), "dx");
  if (cross) check_gradient(p, inputs, inputs.x_kv, values.gradient(Activation::x_kv), "dx_kv");
  for (const Step& step : steps_of(p)) {
    check_gradient(p, inputs, at(inputs.weight, step.part), values.weight_gradient(step.part), name_of(step.part));
    check_gradient(p, inputs, at(inputs.bias, step.part), values.bias_gradient(step.part), name_of(step.part));
  }
  for (const NormPart part : kNormParts) {
    if (at(p.norms, part).given)
      check_gradient(p, inputs, at(inputs.norm, part), values.norm_gradient(part), name_of(part));
  }
}

// Large problems are compared in some rows of each result, and only those are computed.
template <class Arithmetic>
void check_chosen_rows(LayerValues<Arithmetic> values, const LayerProblem& p) {
  const std::vector<std::int64_t> rows = {1, 0};
  const auto check = [&rows](const auto& whole, const auto& some, const std::string& name) {
    ASSERT_EQ(some.rows, std::ssize(rows)) << name;
    EXPECT_EQ(some.values, chosen_rows(whole, rows).values) << name;
  };
  check(values.activation(Activation::y), values.output(rows), "y");
  check(values.gradient(Activation::x), values.input_gradient(Activation::x, rows), "dx");
  for (const Step& step : steps_of(p))
    check(values.weight_gradient(step.part), values.weight_gradient(step.part, rows), name_of(step.part));
}

TEST_P(LayerReference, ChosenRowsAreThoseOfTheWhole) {
  const auto [kind, cross, rows] = GetParam();
  const LayerProblem p = small_problem(kind, cross, rows);
  LayerInputs inputs = inputs_for(p);
  const PerProjection<Sizes> sizes = weight_sizes(p);
  for (const Step& step : steps_of(p)) {
    const Sizes& one = at(sizes, step.part);
    at(inputs.dweight, step.part) = filled(one[2], one[3], 40);  // what the gradient is added to
  }
  check_chosen_rows(exact(p, inputs), p);
  const auto shared = std::make_shared<const LayerInputs>(inputs);
  check_chosen_rows(LayerValues(p, shared, PlainArithmetic(DType::bf16, {})), p);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, LayerReference,
    testing::Values(
        std::tuple{LayerKind::mha_fused, false, Rows::plain}, std::tuple{LayerKind::mha, false, Rows::plain},
        std::tuple{LayerKind::mha, true, Rows::plain}, std::tuple{LayerKind::gqa, true, Rows::plain},
        std::tuple{LayerKind::mqa, false, Rows::plain}, std::tuple{LayerKind::mla, false, Rows::plain},
        std::tuple{LayerKind::mla, true, Rows::plain}, std::tuple{LayerKind::mha_fused, false, Rows::transformed},
        std::tuple{LayerKind::gqa, true, Rows::transformed}, std::tuple{LayerKind::mla, false, Rows::transformed},
        std::tuple{LayerKind::mla, false, Rows::shared_key}, std::tuple{LayerKind::mla, true, Rows::shared_key}));

// Scores of rotated rows depend on the distance of their positions only.
TEST(LayerEvaluation, RotationIsRelative) {
  LayerProblem p = small_problem(LayerKind::mha, true, Rows::transformed);
  const LayerInputs inputs = inputs_for(p);
  const Matrix<double> y = exact(p, inputs).activation(Activation::y);
  p.rotary->position_q += 1000, p.rotary->position_k += 1000;
  const Matrix<double> later = exact(p, inputs).activation(Activation::y);
  p.rotary->position_k += 1;
  const Matrix<double> apart = exact(p, inputs).activation(Activation::y);
  double difference = 0;
  for (std::size_t n = 0; n < y.values.size(); ++n) {
    EXPECT_NEAR(y.values[n], later.values[n], 1e-12);
    difference = std::max(difference, std::abs(y.values[n] - apart.values[n]));
  }
  EXPECT_GT(difference, 1e-3);
}

// A pair of columns and a norm by hand: (3, 4) / sqrt(12.5) times (2, 1), turned by a right angle.
TEST(LayerEvaluation, ARowByHand) {
  RowTransform transform{.weight = Matrix<float>(1, 2), .turn = Turn{.columns = 2}};
  transform.weight.values = {2, 1};
  transform.turn->theta = 1;
  Matrix<double> row(1, 2);
  row.values = {3, 4};
  const Matrix<double> still = transformed(transform, row);
  EXPECT_NEAR(still.values[0], 6 / std::sqrt(12.5), 1e-15);
  EXPECT_NEAR(still.values[1], 4 / std::sqrt(12.5), 1e-15);
  transform.turn->first_position = 11;  // 11 radians are 7 right angles and 0.0044
  const Matrix<double> turned = transformed(transform, row);
  EXPECT_NEAR(turned.values[0], still.values[1], 0.01);
  EXPECT_NEAR(turned.values[1], -still.values[0], 0.01);
}

// One head of dimension 1 and two tokens: y = out (p0 v0 + p1 v1) with p the softmax of q k.
TEST(LayerEvaluation, OneHeadByHand) {
  LayerProblem p{.kind = LayerKind::mha_fused, .len_q = 2, .len_k = 2};
  LayerInputs inputs;
  inputs.x = Matrix<float>(2, 1);
  inputs.x.values = {1.0f, 2.0f};
  inputs.weight.qkv = Matrix<float>(3, 1);
  inputs.weight.qkv.values = {0.5f, 2.0f, 3.0f};
  inputs.weight.out = Matrix<float>(1, 1);
  inputs.weight.out.values = {-1.0f};
  auto values = exact(p, inputs);
  const Matrix<double>& y = values.activation(Activation::y);
  for (int i = 0; i < 2; ++i) {
    const double q = 0.5 * (i + 1), first = std::exp(q * 2), second = std::exp(q * 4);
    EXPECT_NEAR(y.values[static_cast<std::size_t>(i)], -(first * 3 + second * 6) / (first + second), 1e-14);
  }
}

TEST(LayerEvaluation, FusedIsSeparateWithConcatenatedWeights) {
  const LayerProblem fused = small_problem(LayerKind::mha_fused, false);
  LayerProblem separate = fused;
  separate.kind = LayerKind::mha;
  LayerInputs inputs = inputs_for(fused), parts = inputs;
  const std::int64_t rows = fused.heads_q * fused.dim_qk;
  std::int64_t first = 0;
  for (const Part part : {Part::q, Part::k, Part::v}) {
    at(parts.weight, part) = transposed(columns_of(transposed(inputs.weight.qkv), first, rows));
    at(parts.bias, part) = columns_of(inputs.bias.qkv, first, rows);
    first += rows;
  }
  auto one = exact(fused, inputs), other = exact(separate, parts);
  EXPECT_EQ(one.activation(Activation::y).values, other.activation(Activation::y).values);
  const Matrix<double> dqkv = one.weight_gradient(Part::qkv);
  EXPECT_EQ(columns_of(transposed(dqkv), 0, rows).values, transposed(other.weight_gradient(Part::q)).values);
}

// Each of the two query heads of gqa reads a copy of the one key head.
TEST(LayerEvaluation, GroupedIsExpandedMultiHead) {
  const LayerProblem grouped = small_problem(LayerKind::gqa, false);
  LayerProblem expanded = grouped;
  expanded.kind = LayerKind::mha;
  expanded.heads_kv = 2;
  LayerInputs inputs = inputs_for(grouped), copies = inputs;
  for (const Part part : {Part::k, Part::v}) {
    at(copies.weight, part) = stacked(at(inputs.weight, part), at(inputs.weight, part));
    at(copies.bias, part) = side_by_side(at(inputs.bias, part), at(inputs.bias, part));
  }
  auto one = exact(grouped, inputs), other = exact(expanded, copies);
  EXPECT_EQ(one.activation(Activation::y).values, other.activation(Activation::y).values);
  const Matrix<double> summed = one.weight_gradient(Part::k), apart = other.weight_gradient(Part::k);
  for (std::size_t n = 0; n < summed.values.size(); ++n)
    EXPECT_NEAR(summed.values[n], apart.values[n] + apart.values[n + summed.values.size()], 1e-13);
}

// Token 1 of the first sequence: its own row and the later ones see it, and their gradients reach every key before
// them.
TEST(LayerEvaluation, ANaNReachesTheRowsThatSeeItAndNoOthers) {
  for (const Rows rows : {Rows::plain, Rows::transformed}) {
    const LayerProblem p = small_problem(LayerKind::mha, false, rows);
    LayerInputs inputs = inputs_for(p);
    inputs.x.row(1)[2] = NAN;
    auto values = exact(p, inputs);
    const Matrix<double>&y = values.activation(Activation::y), &dx = values.gradient(Activation::x);
    for (std::int64_t row = 0; row < 6; ++row) {
      for (std::int64_t c = 0; c < p.width; ++c) {
        EXPECT_EQ(std::isnan(y.row(row)[c]), row == 1 || row == 2) << row;
        EXPECT_EQ(std::isnan(dx.row(row)[c]), row < 3) << row;
      }
    }
    for (const double value : values.weight_gradient(Part::q).values) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(LayerEvaluation, ThePlainEvaluationRoundsBetweenTheParts) {
  LayerProblem p = small_problem(LayerKind::mla, false);
  const auto inputs = std::make_shared<const LayerInputs>(inputs_for(p));
  LayerValues values(p, inputs, PlainArithmetic(DType::bf16, {}));
  Matrix<float> latent = values.activation(Activation::q_latent), rounded = latent;
  round_to(DType::bf16, rounded);
  EXPECT_EQ(latent.values, rounded.values);
  Matrix<float> y = values.activation(Activation::y);
  rounded = y;
  round_to(DType::bf16, rounded);
  EXPECT_NE(y.values, rounded.values) << "a result is rounded by its reader";
}

// Products of every shape near the blocks, and on several threads.
TEST(LayerEvaluation, ProductsAreSums) {
  for (const auto& [rows, terms, columns] :
       {std::tuple{1, 1, 1}, {3, 5, 7}, {4, 513, 9}, {5, 0, 3}, {9, 600, 17}, {300, 257, 300}}) {
    const Matrix<float> a = filled(rows, terms, 1), b = filled(terms, columns, 2);
    Matrix<double> wide_a(rows, terms), wide_b(terms, columns);
    std::copy(a.values.begin(), a.values.end(), wide_a.values.begin());
    std::copy(b.values.begin(), b.values.end(), wide_b.values.begin());
    const Matrix<double> exact = product(wide_a, wide_b);
    const Matrix<float> plain = product(a, b, {});
    for (int i = 0; i < rows; ++i) {
      for (int c = 0; c < columns; ++c) {
        double sum = 0;
        for (int t = 0; t < terms; ++t) sum += wide_a.row(i)[t] * wide_b.row(t)[c];
        EXPECT_EQ(exact.row(i)[c], sum);  // 16 fractional bits: every order gives the same sum
        EXPECT_NEAR(plain.row(i)[c], sum, terms * 0x1p-24 * terms);
      }
    }
  }
}

TEST(LayerEvaluation, AnOperandMayBeATranspose) {
  const LayerEvaluator& evaluator = layer_evaluator_on_cpu();
  const Matrix<float> a = filled(5, 9, 1), b = filled(9, 7, 2), a_t = transposed(a), b_t = transposed(b);
  const Matrix<double> wide_a = cast<double>(a), wide_a_t = cast<double>(a_t),
                       wanted = product(wide_a, cast<double>(b));
  EXPECT_EQ(evaluator.multiply(Operand(wide_a_t, true), Operand(b_t, true)).values, wanted.values);
  EXPECT_EQ(evaluator.multiply(wide_a, b).values, wanted.values);
  EXPECT_EQ(evaluator.multiply(Operand(a_t, true), Operand(b_t, true), {}, {}).values, product(a, b, {}).values);
}

}  // namespace
}  // namespace fovea::verification
