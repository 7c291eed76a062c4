// Dense matrices and their products: exact enough in double, and in fp32 with the roundings of a plain evaluation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fovea/tensor.h"
#include "verification/attention/plain.h"
#include "verification/blocks.h"

namespace fovea::verification {

template <class Number>
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<Number> values = {};  // [rows, columns]

  Matrix() = default;
  Matrix(std::int64_t the_rows, std::int64_t the_columns)
      : rows(the_rows), columns(the_columns), values(static_cast<std::size_t>(the_rows * the_columns)) {}
  Number* row(std::int64_t n) { return values.data() + n * columns; }
  const Number* row(std::int64_t n) const { return values.data() + n * columns; }
};

// a [rows, terms] times b [terms, columns]. Sums in double have any order; sums in fp32 have that of the variant.
// `added` [rows, columns] is added to it; if it is empty, nothing is. Sums of a fused variant start from it.
Matrix<double> product(const Matrix<double>& a, const Matrix<double>& b, const Matrix<double>& added = {});
Matrix<float> product(const Matrix<float>& a, const Matrix<float>& b, const PlainVariant& variant,
                      const Matrix<float>& added = {});

template <class Number>
Matrix<Number> transposed(const Matrix<Number>& m) {
  constexpr std::int64_t kTile = 32;
  Matrix<Number> result(m.columns, m.rows);
  for_each_block(m.rows, kTile, static_cast<double>(m.values.size()), [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t j = 0; j < m.columns; ++j) {
      for (std::int64_t i = first; i < first + count; ++i) result.row(j)[i] = m.row(i)[j];
    }
  });
  return result;
}

template <class Number>
Matrix<Number> columns_of(const Matrix<Number>& m, std::int64_t first, std::int64_t count) {
  Matrix<Number> result(m.rows, count);
  for (std::int64_t i = 0; i < m.rows; ++i) {
    for (std::int64_t c = 0; c < count; ++c) result.row(i)[c] = m.row(i)[first + c];
  }
  return result;
}

// An operand of a product: a matrix that outlives the call, or its transpose.
template <class Number>
struct Operand {
  const Matrix<Number>& matrix;
  bool is_transposed;

  Operand(const Matrix<Number>& the_matrix, bool transposes = false) : matrix(the_matrix), is_transposed(transposes) {}
  std::int64_t rows() const { return is_transposed ? matrix.columns : matrix.rows; }
  std::int64_t columns() const { return is_transposed ? matrix.rows : matrix.columns; }
};

template <class Number>
Matrix<Number> cast(const Matrix<float>& m) {
  Matrix<Number> result(m.rows, m.columns);
  for_each_block(m.rows, 1, static_cast<double>(m.values.size()), [&](std::int64_t first, std::int64_t count) {
    std::copy(m.row(first), m.row(first + count), result.row(first));
  });
  return result;
}

// Appends the columns of b to each row of a; an empty matrix counts as none.
template <class Number>
Matrix<Number> side_by_side(const Matrix<Number>& a, const Matrix<Number>& b) {
  if (a.columns == 0) return b;
  Matrix<Number> result(a.rows, a.columns + b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t c = 0; c < a.columns; ++c) result.row(i)[c] = a.row(i)[c];
    for (std::int64_t c = 0; c < b.columns; ++c) result.row(i)[a.columns + c] = b.row(i)[c];
  }
  return result;
}

// Appends the rows of b to those of a.
template <class Number>
Matrix<Number> stacked(Matrix<Number> a, const Matrix<Number>& b) {
  if (a.rows == 0) return b;
  a.values.insert(a.values.end(), b.values.begin(), b.values.end());
  a.rows += b.rows;
  return a;
}

// Rounds every element to the type.
void round_to(DType type, Matrix<float>& m);

}  // namespace fovea::verification
