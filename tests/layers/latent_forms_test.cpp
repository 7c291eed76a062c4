// Both forms of the latent layer against their expanded definitions: multi-head attention whose weights are the
// products of the latent layer's, and attention on heads of q, k and v that are written out from DeepSeek's formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "expected_layer.h"
#include "expected_transforms.h"

namespace fovea::layers {
namespace {

Matrix transposed(const Matrix& m) {
  Matrix result(m.columns, m.rows);
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t c = 0; c < m.columns; ++c) result(c, r) = m(r, c);
  return result;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.columns);
  for (std::int64_t r = 0; r < result.rows; ++r)
    for (std::int64_t c = 0; c < result.columns; ++c)
      for (std::int64_t i = 0; i < a.columns; ++i) result(r, c) += a(r, i) * b(i, c);
  return result;
}

Matrix sum(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

Matrix projected(const Matrix& x, const Matrices& in, const std::string& name) {
  Matrix y = product(x, transposed(in.at(name)));
  for (std::int64_t r = 0; r < y.rows; ++r)
    for (std::int64_t c = 0; c < y.columns; ++c) y(r, c) += in.at(name + ".bias")(0, c);
  return y;
}

void expect_near(const std::string& name, const std::vector<float>& values, const Matrix& expected) {
  EXPECT_LE(difference(values, expected, largest_of(expected)), tolerance(DType::fp32)) << name;
}

// The form of report C: W_q = W_q_up W_q_down and so on, and a bias W_up b_down + b_up.
Matrices with_expanded_weights(Matrices in) {
  for (const auto& [up, down] : {std::pair{"q", "q_down"}, {"k", "kv_down"}, {"v", "kv_down"}}) {
    Matrix& bias = in.at(std::string(up) + ".bias");
    bias = sum(bias, product(in.at(std::string(down) + ".bias"), transposed(in.at(up))));
    in.at(up) = product(in.at(up), in.at(down));
  }
  for (const char* const down : {"q_down", "kv_down"}) in.erase(down), in.erase(std::string(down) + ".bias");
  return in;
}

void set_inputs(LayerCall& call, const Matrices& in) {
  for (const auto& [name, matrix] : in) {
    for (std::size_t i = 0; i < matrix.values.size(); ++i)
      call.tensor(name).set(static_cast<std::int64_t>(i), static_cast<float>(matrix.values[i]));
  }
}

std::vector<Shape> plain_latent_shapes() {
  std::vector<Shape> shapes;
  for (const Shape& shape : plain_shapes()) {
    if (shape.kind == LayerKind::mla) shapes.push_back(shape);
  }
  return shapes;
}

Shape expanded(Shape shape) {
  shape.kind = LayerKind::mha;
  shape.latent_q = shape.latent_kv = 0;
  return shape;
}

TEST(LatentForms, ReportCsFormIsMultiHeadAttentionWithExpandedWeightsInDouble) {
  for (const Shape& shape : plain_latent_shapes()) {
    const Matrices latent = inputs_of(LayerCall(shape)), wide = with_expanded_weights(latent);
    const LayerProblem problem = problem_of(shape), expanded_problem = problem_of(expanded(shape));
    Matrices got = expected_gradients(problem, latent), wanted = expected_gradients(expanded_problem, wide);
    got["y"] = expected_y(problem, latent), wanted["y"] = expected_y(expanded_problem, wide);
    for (const std::string name : {"y", "dx", "dx_kv", "dout", "dout.bias"}) {
      if (!shape.cross && name == "dx_kv") continue;
      for (std::size_t i = 0; i < wanted.at(name).values.size(); ++i)
        EXPECT_NEAR(got.at(name).values[i], wanted.at(name).values[i], 1e-13 * largest_of(wanted.at(name))) << name;
    }
  }
}

TEST(LatentForms, ReportCsFormIsMultiHeadAttentionWithExpandedWeights) {
  for (const Shape& shape : plain_latent_shapes()) {
    const LayerCall latent(shape);
    LayerCall wide(expanded(shape));
    set_inputs(wide, with_expanded_weights(inputs_of(latent)));
    latent.run(), wide.run();
    for (const std::string name : {"y", "dx", "dx_kv", "dout", "dout.bias"}) {
      if (!shape.cross && name == "dx_kv") continue;
      Matrix wanted(1, static_cast<std::int64_t>(wide.values(name).size()));
      std::ranges::copy(wide.values(name), wanted.values.begin());
      expect_near(name, latent.values(name), wanted);
    }
  }
}

// Rotates pairs of neighbouring columns of `dim`-column heads, from `first` on, by the row's position; backwards if
// `sign` is -1.
Matrix rotated(Matrix rows, std::int64_t len, std::int64_t dim, std::int64_t first, double position, double sign = 1) {
  const double pairs = static_cast<double>(dim - first) / 2;
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    for (std::int64_t head = 0; head < rows.columns; head += dim) {
      for (std::int64_t c = first; c < dim; c += 2) {
        const double exponent = static_cast<double>(c - first) / 2 / pairs,
                     angle = sign * (position + static_cast<double>(r % len)) * std::pow(10000.0, -exponent);
        double &a = rows(r, head + c), &b = rows(r, head + c + 1);
        const double rotated_a = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = rotated_a;
      }
    }
  }
  return rows;
}

Matrix normalised(Matrix rows, const Matrix& weight) {
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    double squares = 0;
    for (std::int64_t c = 0; c < rows.columns; ++c) squares += rows(r, c) * rows(r, c);
    const double divisor = std::sqrt(squares / static_cast<double>(rows.columns) + LayerOptions{}.epsilon);
    for (std::int64_t c = 0; c < rows.columns; ++c) rows(r, c) *= weight(0, c) / divisor;
  }
  return rows;
}

// Rows (batch, position) of fp32 heads, as attention reads and writes them.
class HeadRows {
 public:
  HeadRows(const Shape& s, std::int64_t len, std::int64_t dim)
      : values_(static_cast<std::size_t>(s.batch * len * s.heads_q * dim)) {
    view = contiguous(values_.data(), {s.batch, s.heads_q, len, dim});
    view.strides = {len * s.heads_q * dim, dim, s.heads_q * dim, 1};
  }
  HeadRows(const Shape& s, std::int64_t len, const Matrix& rows) : HeadRows(s, len, rows.columns / s.heads_q) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(rows.values[i]);
  }
  HeadRows(const HeadRows&) = delete;
  HeadRows& operator=(const HeadRows&) = delete;

  Matrix matrix() const {
    Matrix rows(view.sizes[0] * view.sizes[2], view.strides[2]);
    std::ranges::copy(values_, rows.values.begin());
    return rows;
  }

  MutableTensorView view;

 private:
  std::vector<float> values_;
};

// What attention makes of heads, and the gradients of these.
struct Attended {
  Matrix out, dq, dk, dv;
};

Attended attend(const Shape& s, const Matrix& q_rows, const Matrix& k_rows, const Matrix& v_rows,
                const Matrix& dout_rows) {
  const HeadRows q(s, s.len_q, q_rows), k(s, s.len_k, k_rows), v(s, s.len_k, v_rows), dout(s, s.len_q, dout_rows),
      out(s, s.len_q, s.dim_v), dq(s, s.len_q, s.dim_qk), dk(s, s.len_k, s.dim_qk), dv(s, s.len_k, s.dim_v);
  std::vector<float> lse_values(static_cast<std::size_t>(s.batch * s.heads_q * s.len_q));
  const MutableTensorView lse = contiguous(lse_values.data(), {s.batch, s.heads_q, s.len_q, 1});
  fovea::attention_forward({.q = q.view, .k = k.view, .v = v.view, .out = out.view, .lse = lse}, {.mask = s.mask});
  fovea::attention_backward({.q = q.view,
                             .k = k.view,
                             .v = v.view,
                             .out = out.view,
                             .lse = lse,
                             .dout = dout.view,
                             .dq = dq.view,
                             .dk = dk.view,
                             .dv = dv.view},
                            {.mask = s.mask});
  return {out.matrix(), dq.matrix(), dk.matrix(), dv.matrix()};
}

// Each head of k: its own columns, then the columns of the key that all heads share.
Matrix whole_keys(const Shape& s, const Matrix& own, const Matrix& shared) {
  const std::int64_t columns = s.dim_qk - s.dim_shared;
  Matrix all(own.rows, 0);
  for (std::int64_t head = 0; head < s.heads_q; ++head)
    all = beside(all, beside(columns_of(own, head * columns, columns), shared));
  return all;
}

// DeepSeek-V2, arXiv 2405.04434, 2.1, with RMS norms of both latents.
void expect_deepseeks_form(const Shape& s) {
  const LayerCall call(s);
  call.run();
  const Matrices in = inputs_of(call);
  const std::int64_t own = s.dim_qk - s.dim_shared;
  const double q_position = static_cast<double>(s.rotary->position_q),
               k_position = static_cast<double>(s.rotary->position_k);
  const Matrix &x = in.at("x"), &keys = s.cross ? in.at("x_kv") : x;
  const Matrix kv_down = projected(keys, in, "kv_down");
  const Matrix q_latent = normalised(projected(x, in, "q_down"), in.at("q_latent.norm")),
               kv_latent = normalised(columns_of(kv_down, 0, s.latent_kv), in.at("kv_latent.norm"));
  const Matrix shared = rotated(columns_of(kv_down, s.latent_kv, s.dim_shared), s.len_k, s.dim_shared, 0, k_position);
  const Matrix q = rotated(projected(q_latent, in, "q"), s.len_q, s.dim_qk, own, q_position),
               k = whole_keys(s, projected(kv_latent, in, "k"), shared), v = projected(kv_latent, in, "v");
  const Attended heads = attend(s, q, k, v, product(in.at("dy"), in.at("out")));
  expect_near("y", call.values("y"), projected(heads.out, in, "out"));

  Matrix dk(k.rows, 0), dshared(k.rows, s.dim_shared);
  for (std::int64_t first = 0; first < k.columns; first += s.dim_qk) {
    dk = beside(dk, columns_of(heads.dk, first, own));
    dshared = sum(dshared, columns_of(heads.dk, first + own, s.dim_shared));
  }
  const Matrix dq = rotated(heads.dq, s.len_q, s.dim_qk, own, q_position, -1);
  dshared = rotated(dshared, s.len_k, s.dim_shared, 0, k_position, -1);
  expect_near("dq", call.values("dq"), product(transposed(dq), q_latent));
  expect_near("dk", call.values("dk"), product(transposed(dk), kv_latent));
  expect_near("dv", call.values("dv"), product(transposed(heads.dv), kv_latent));
  const std::vector<float> dkv_down = call.values("dkv_down");
  expect_near("dkv_down of the shared key", {dkv_down.begin() + s.latent_kv * keys.columns, dkv_down.end()},
              product(transposed(dshared), keys));
}

TEST(LatentForms, DeepSeeksFormIsAttentionOnExpandedHeads) {
  const Shape shape{.kind = LayerKind::mla,
                    .len_q = 35,
                    .len_k = 35,
                    .dim_qk = 12,
                    .dim_v = 8,
                    .latent_q = 10,
                    .latent_kv = 9,
                    .mask = Mask::causal,
                    .dim_shared = 4,
                    .rotary = Rotary{.position_q = 100, .position_k = 100},
                    .latent_norm = true};
  expect_deepseeks_form(shape);
  Shape cross = shape;
  cross.cross = true, cross.len_k = 21, cross.width_kv = 10, cross.mask = Mask::none;
  cross.rotary = Rotary{.position_q = 3, .position_k = 40};
  expect_deepseeks_form(cross);
}

}  // namespace
}  // namespace fovea::layers
