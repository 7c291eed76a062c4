// Forward keeps what backward needs; gradients follow the formulas of the chain rule.
#include "expected_layer.h"

#include <algorithm>

#include "expected_transforms.h"

namespace fovea::layers {
namespace {

Matrix project(const Matrix& x, const Matrices& in, const std::string& name) {
  const Matrix& w = in.at(name);
  Matrix y(x.rows, w.rows);
  const auto bias = in.find(name + ".bias");
  for (std::int64_t r = 0; r < y.rows; ++r) {
    for (std::int64_t c = 0; c < y.columns; ++c) {
      double sum = bias == in.end() ? 0 : bias->second(0, c);
      for (std::int64_t i = 0; i < x.columns; ++i) sum += x(r, i) * w(c, i);
      y(r, c) = sum;
    }
  }
  return y;
}

// Adds to dx, and stores the gradients of weight and bias.
void project_backward(const Matrix& x, const Matrix& dy, const Matrices& in, const std::string& name, Matrix& dx,
                      Matrices& gradients) {
  const Matrix& w = in.at(name);
  Matrix dw(w.rows, w.columns), db(1, w.rows);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < dy.columns; ++c) {
      db(0, c) += dy(r, c);
      for (std::int64_t i = 0; i < x.columns; ++i) {
        dw(c, i) += dy(r, c) * x(r, i);
        dx(r, i) += dy(r, c) * w(c, i);
      }
    }
  }
  gradients["d" + name] = std::move(dw);
  gradients["d" + name + ".bias"] = std::move(db);
}

struct Activations {
  Matrix q_down, kv_down, q_latent, kv_latent, q_projected, k_projected, q, k, v, attention;
};

// Probabilities of one query row over the keys of its batch element.
std::vector<double> probabilities(const LayerProblem& p, const Activations& a, std::int64_t b, std::int64_t h,
                                  std::int64_t i) {
  const std::int64_t key_head = h / (p.heads_q / p.heads_kv);
  const KeyWindow window = key_window({.len_q = p.len_q, .len_k = p.len_k, .mask = p.mask});
  std::vector<double> scores(static_cast<std::size_t>(p.len_k), -INFINITY);
  for (std::int64_t j = std::max<std::int64_t>(0, i + window.begin); j < std::min(p.len_k, i + window.end); ++j) {
    double s = 0;
    for (std::int64_t c = 0; c < p.dim_qk; ++c)
      s += a.q(b * p.len_q + i, h * p.dim_qk + c) * a.k(b * p.len_k + j, key_head * p.dim_qk + c);
    scores[static_cast<std::size_t>(j)] = p.scale * s;
  }
  const double largest = scores.empty() ? 0 : *std::ranges::max_element(scores);
  double sum = 0;
  for (double& s : scores) sum += s = largest == -INFINITY ? 0 : std::exp(s - largest);
  for (double& s : scores) s = sum == 0 ? 0 : s / sum;
  return scores;
}

template <class Visit>
void for_each_row(const LayerProblem& p, Visit visit) {
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads_q; ++h)
      for (std::int64_t i = 0; i < p.len_q; ++i) visit(b, h, i);
}

Activations activations(const LayerProblem& p, const Matrices& in) {
  Activations a;
  const Matrix &x = in.at("x"), &keys = p.cross ? in.at("x_kv") : x;
  if (p.kind == LayerKind::mha_fused) {
    const Matrix qkv = project(x, in, "qkv");
    const std::int64_t n = p.heads_q * p.dim_qk;
    a.q_projected = columns_of(qkv, 0, n), a.k_projected = columns_of(qkv, n, n), a.v = columns_of(qkv, 2 * n, n);
  } else if (p.kind == LayerKind::mla) {
    a.q_down = project(x, in, "q_down"), a.kv_down = project(keys, in, "kv_down");
    a.q_latent = transformed(p, in, a.q_down, "q_latent");
    a.kv_latent = transformed(p, in, columns_of(a.kv_down, 0, p.latent_kv), "kv_latent");
    a.q_projected = project(a.q_latent, in, "q"), a.k_projected = project(a.kv_latent, in, "k");
    a.v = project(a.kv_latent, in, "v");
  } else {
    a.q_projected = project(x, in, "q"), a.k_projected = project(keys, in, "k"), a.v = project(keys, in, "v");
  }
  a.q = transformed(p, in, a.q_projected, "q"), a.k = transformed(p, in, a.k_projected, "k");
  if (p.dim_shared > 0)
    a.k = with_shared_key(p, a.k, transformed(p, in, columns_of(a.kv_down, p.latent_kv, p.dim_shared), "shared"));
  a.attention = Matrix(p.batch * p.len_q, p.heads_q * p.dim_v);
  for_each_row(p, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::vector<double> weights = probabilities(p, a, b, h, i);
    const std::int64_t key_head = h / (p.heads_q / p.heads_kv);
    for (std::int64_t j = 0; j < p.len_k; ++j)
      for (std::int64_t c = 0; c < p.dim_v; ++c)
        a.attention(b * p.len_q + i, h * p.dim_v + c) +=
            weights[static_cast<std::size_t>(j)] * a.v(b * p.len_k + j, key_head * p.dim_v + c);
  });
  return a;
}

struct HeadGradients {
  Matrix dq, dk, dv;
};

HeadGradients attention_backward(const LayerProblem& p, const Activations& a, const Matrix& dout) {
  HeadGradients g{Matrix(a.q.rows, a.q.columns), Matrix(a.k.rows, a.k.columns), Matrix(a.v.rows, a.v.columns)};
  for_each_row(p, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::vector<double> weights = probabilities(p, a, b, h, i);
    const std::int64_t key_head = h / (p.heads_q / p.heads_kv), row = b * p.len_q + i;
    std::vector<double> dp(weights.size());
    double delta = 0;
    for (std::int64_t j = 0; j < p.len_k; ++j) {
      const auto at = static_cast<std::size_t>(j);
      for (std::int64_t c = 0; c < p.dim_v; ++c) {
        const double d = dout(row, h * p.dim_v + c);
        dp[at] += d * a.v(b * p.len_k + j, key_head * p.dim_v + c);
        g.dv(b * p.len_k + j, key_head * p.dim_v + c) += weights[at] * d;
      }
      delta += weights[at] * dp[at];
    }
    for (std::int64_t j = 0; j < p.len_k; ++j) {
      const double ds = weights[static_cast<std::size_t>(j)] * (dp[static_cast<std::size_t>(j)] - delta) * p.scale;
      for (std::int64_t c = 0; c < p.dim_qk; ++c) {
        g.dq(row, h * p.dim_qk + c) += ds * a.k(b * p.len_k + j, key_head * p.dim_qk + c);
        g.dk(b * p.len_k + j, key_head * p.dim_qk + c) += ds * a.q(row, h * p.dim_qk + c);
      }
    }
  });
  return g;
}

Matrix side_by_side(const HeadGradients& g) {
  Matrix all(g.dq.rows, g.dq.columns + g.dk.columns + g.dv.columns);
  for (std::int64_t r = 0; r < all.rows; ++r) {
    std::int64_t column = 0;
    for (const Matrix* one : {&g.dq, &g.dk, &g.dv})
      for (std::int64_t c = 0; c < one->columns; ++c) all(r, column++) = (*one)(r, c);
  }
  return all;
}

}  // namespace

double largest_of(const Matrix& m) {
  double largest = 1e-30;
  for (const double value : m.values) largest = std::max(largest, std::abs(value));
  return largest;
}

double difference(const std::vector<float>& values, const Matrix& expected, double scale) {
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return INFINITY;
    worst = std::max(worst, std::abs(values[i] - expected.values[i]));
  }
  return values.size() == expected.values.size() ? worst / scale : INFINITY;
}

double tolerance(DType dtype) { return dtype == DType::fp32 ? 3e-6 : dtype == DType::fp16 ? 3e-3 : 2.4e-2; }

std::string fault_of(const LayerCall& call) {
  const Matrices inputs = inputs_of(call);
  const LayerProblem problem = problem_of(call.shape);
  Matrices expected = expected_gradients(problem, inputs);
  expected["y"] = expected_y(problem, inputs);
  std::string fault;
  for (const auto& [name, values] : call.results()) {
    // The sum of dk's rows is 0 where no key is masked, so a bias is judged by all biases.
    double scale = largest_of(expected.at(name));
    for (const auto& [other, matrix] : expected) {
      if (name.ends_with(".bias") && other.ends_with(".bias")) scale = std::max(scale, largest_of(matrix));
    }
    const double off = difference(values, expected.at(name), scale);
    if (!(off <= tolerance(call.shape.dtype))) fault += name + " is off by " + std::to_string(off) + " ";
  }
  return fault;
}

Matrices inputs_of(const LayerCall& call) {
  Matrices in;
  const auto add = [&](const std::string& name, const TensorView& view) {
    if (!view) return;
    Matrix m(view.sizes[0] * view.sizes[2], view.sizes[3]);
    const std::vector<float> values = call.values(name);
    std::ranges::copy(values, m.values.begin());
    in[name] = std::move(m);
  };
  add("x", call.forward.x), add("x_kv", call.forward.x_kv), add("dy", call.backward.dy);
  for (const Slot slot : kAllSlots) {
    const std::string name(name_of(slot));
    add(name, layers::at(call.forward.parameters, slot).weight);
    add(name + ".bias", layers::at(call.forward.parameters, slot).bias);
  }
  for (const Norm norm : kAllNorms) add(std::string(name_of(norm)) + ".norm", layers::at(call.forward.norms, norm));
  return in;
}

Matrix expected_y(const LayerProblem& p, const Matrices& in) {
  return project(activations(p, in).attention, in, "out");
}

Matrices expected_gradients(const LayerProblem& p, const Matrices& in) {
  Matrices g;
  const Activations a = activations(p, in);
  const Matrix &x = in.at("x"), &keys = p.cross ? in.at("x_kv") : x;
  Matrix dout(a.attention.rows, a.attention.columns);
  project_backward(a.attention, in.at("dy"), in, "out", dout, g);
  HeadGradients heads = attention_backward(p, a, dout);
  KeyGradients shared;
  if (p.dim_shared > 0) {
    shared = key_gradients(p, heads.dk);
    heads.dk = shared.own;
    shared.key = transform_gradient(p, in, shared.key, shared.key, "shared", g);
  }
  heads.dq = transform_gradient(p, in, a.q_projected, heads.dq, "q", g);
  heads.dk = transform_gradient(p, in, a.k_projected, heads.dk, "k", g);
  Matrix dx(x.rows, x.columns), dx_kv(keys.rows, keys.columns);
  Matrix& dkeys = p.cross ? dx_kv : dx;
  if (p.kind == LayerKind::mha_fused) {
    project_backward(x, side_by_side(heads), in, "qkv", dx, g);
  } else if (p.kind == LayerKind::mla) {
    Matrix dq_latent(a.q_latent.rows, a.q_latent.columns), dkv_latent(a.kv_latent.rows, a.kv_latent.columns);
    project_backward(a.q_latent, heads.dq, in, "q", dq_latent, g);
    project_backward(a.kv_latent, heads.dk, in, "k", dkv_latent, g);
    project_backward(a.kv_latent, heads.dv, in, "v", dkv_latent, g);
    dq_latent = transform_gradient(p, in, a.q_down, dq_latent, "q_latent", g);
    dkv_latent = transform_gradient(p, in, columns_of(a.kv_down, 0, p.latent_kv), dkv_latent, "kv_latent", g);
    if (p.dim_shared > 0) dkv_latent = beside(dkv_latent, shared.key);
    project_backward(x, dq_latent, in, "q_down", dx, g);
    project_backward(keys, dkv_latent, in, "kv_down", dkeys, g);
  } else {
    project_backward(x, heads.dq, in, "q", dx, g);
    project_backward(keys, heads.dk, in, "k", dkeys, g);
    project_backward(keys, heads.dv, in, "v", dkeys, g);
  }
  g["dx"] = dx;
  if (p.cross) g["dx_kv"] = dx_kv;
  return g;
}

}  // namespace fovea::layers
