// Which rows are normalised and rotated, told from the problem.
#include "expected_transforms.h"

#include "heads/expected_rows.h"

namespace fovea::layers {
namespace {

using heads::Row;

Row part_of(const Matrix& m, std::int64_t row, std::int64_t first, std::int64_t count) {
  Row part;
  for (std::int64_t c = 0; c < count; ++c) part.push_back(m(row, first + c));
  return part;
}

void put(const Row& part, Matrix& m, std::int64_t row, std::int64_t first) {
  for (std::size_t c = 0; c < part.size(); ++c) m(row, first + static_cast<std::int64_t>(c)) = part[c];
}

struct Facts {
  std::int64_t heads = 1, len = 1, first_position = 0;
  bool rotates = false;
  heads::Rotation rotation;
};

Facts facts_of(const LayerProblem& p, const std::string& norm) {
  const bool of_q = norm == "q" || norm == "q_latent", of_heads = norm == "q" || norm == "k" || norm == "shared";
  Facts facts{.heads = norm == "q" ? p.heads_q : norm == "k" ? p.heads_kv : 1, .len = of_q ? p.len_q : p.len_k};
  facts.rotates = p.rotary && of_heads && !(norm == "k" && p.dim_shared > 0);
  if (!facts.rotates) return facts;
  facts.first_position = of_q ? p.rotary->position_q : p.rotary->position_k;
  facts.rotation = {.theta = p.rotary->theta,
                    .pairs = p.rotary->pairs,
                    .first_column = norm == "q" && p.dim_shared > 0 ? p.dim_qk - p.dim_shared : 0,
                    .columns = p.rotary->columns == 0 ? p.dim_qk : p.rotary->columns};
  return facts;
}

}  // namespace

Matrix columns_of(const Matrix& m, std::int64_t first, std::int64_t count) {
  Matrix part(m.rows, count);
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t c = 0; c < count; ++c) part(r, c) = m(r, first + c);
  return part;
}

Matrix beside(const Matrix& a, const Matrix& b) {
  Matrix all(a.rows, a.columns + b.columns);
  for (std::int64_t r = 0; r < a.rows; ++r)
    put(part_of(a, r, 0, a.columns), all, r, 0), put(part_of(b, r, 0, b.columns), all, r, a.columns);
  return all;
}

Matrix transformed(const LayerProblem& p, const Matrices& in, const Matrix& rows, const std::string& norm) {
  const Facts facts = facts_of(p, norm);
  const auto weight = in.find(norm + ".norm");
  Matrix result(rows.rows, rows.columns);
  const std::int64_t dim = rows.columns / facts.heads;
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    for (std::int64_t h = 0; h < facts.heads; ++h) {
      Row row = part_of(rows, r, h * dim, dim);
      if (weight != in.end()) row = heads::normalised(row, weight->second.values, p.epsilon);
      if (facts.rotates) row = heads::rotated(row, facts.rotation, facts.first_position + r % facts.len);
      put(row, result, r, h * dim);
    }
  }
  return result;
}

Matrix transform_gradient(const LayerProblem& p, const Matrices& in, const Matrix& rows, const Matrix& gradient,
                          const std::string& norm, Matrices& gradients) {
  const Facts facts = facts_of(p, norm);
  const auto weight = in.find(norm + ".norm");
  Matrix result(gradient.rows, gradient.columns);
  const std::int64_t dim = gradient.columns / facts.heads;
  Matrix dweight(1, dim);
  for (std::int64_t r = 0; r < gradient.rows; ++r) {
    for (std::int64_t h = 0; h < facts.heads; ++h) {
      Row g = part_of(gradient, r, h * dim, dim);
      if (facts.rotates) g = heads::rotated(g, facts.rotation, facts.first_position + r % facts.len, -1);
      if (weight != in.end()) {
        const Row row = part_of(rows, r, h * dim, dim);
        for (std::int64_t c = 0; c < dim; ++c) {
          const auto at = static_cast<std::size_t>(c);
          dweight(0, c) += g[at] * row[at] * heads::factor_of(row, p.epsilon);
        }
        g = heads::norm_gradient(row, weight->second.values, p.epsilon, g);
      }
      put(g, result, r, h * dim);
    }
  }
  if (weight != in.end()) gradients["d" + norm + ".norm"] = std::move(dweight);
  return result;
}

Matrix with_shared_key(const LayerProblem& p, const Matrix& own, const Matrix& key) {
  const std::int64_t dim = own.columns / p.heads_kv;
  Matrix all = beside(columns_of(own, 0, dim), key);
  for (std::int64_t h = 1; h < p.heads_kv; ++h) all = beside(all, beside(columns_of(own, h * dim, dim), key));
  return all;
}

KeyGradients key_gradients(const LayerProblem& p, const Matrix& gradient) {
  const std::int64_t own = p.dim_qk - p.dim_shared;
  KeyGradients split{columns_of(gradient, 0, own), columns_of(gradient, own, p.dim_shared)};
  for (std::int64_t h = 1; h < p.heads_kv; ++h) {
    split.own = beside(split.own, columns_of(gradient, h * p.dim_qk, own));
    const Matrix key = columns_of(gradient, h * p.dim_qk + own, p.dim_shared);
    for (std::size_t i = 0; i < key.values.size(); ++i) split.key.values[i] += key.values[i];
  }
  return split;
}

}  // namespace fovea::layers
