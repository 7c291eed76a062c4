// Dense matrices and their products: exact enough in double, and in fp32 with the roundings of a plain evaluation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "fovea/tensor.h"
#include "verification/attention/plain.h"
#include "verification/blocks.h"

namespace fovea::verification {

// Elements that are made without a value have none yet. One thread zeroes gigabytes more slowly than many threads
// compute them.
template <class Number>
struct UnsetAllocator : std::allocator<Number> {
  template <class Other>
  struct rebind {
    using other = UnsetAllocator<Other>;
  };
  template <class Other>
  void construct(Other* at) noexcept {
    ::new (static_cast<void*>(at)) Other;
  }
  template <class Other, class... Arguments>
  void construct(Other* at, Arguments&&... arguments) {
    std::construct_at(at, std::forward<Arguments>(arguments)...);
  }
};

template <class Number>
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<Number, UnsetAllocator<Number>> values = {};  // [rows, columns]

  Matrix() = default;
  Matrix(std::int64_t the_rows, std::int64_t the_columns)
      : rows(the_rows), columns(the_columns), values(static_cast<std::size_t>(the_rows * the_columns), Number{}) {}
  // For a caller that writes every element.
  static Matrix unset(std::int64_t rows, std::int64_t columns) {
    Matrix m;
    m.rows = rows;
    m.columns = columns;
    m.values.resize(static_cast<std::size_t>(rows * columns));
    return m;
  }
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
  Matrix<Number> result = Matrix<Number>::unset(m.columns, m.rows);
  for_each_block(m.rows, kTile, static_cast<double>(m.values.size()), [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t j = 0; j < m.columns; ++j) {
      for (std::int64_t i = first; i < first + count; ++i) result.row(j)[i] = m.row(i)[j];
    }
  });
  return result;
}

// The matrix whose row i is written by write(i, row), on several threads if there is enough work.
template <class Number, class Write>
Matrix<Number> by_rows(std::int64_t rows, std::int64_t columns, const Write& write) {
  Matrix<Number> result = Matrix<Number>::unset(rows, columns);
  for_each_block(rows, 1, static_cast<double>(result.values.size()),
                 [&](std::int64_t i, std::int64_t) { write(i, result.row(i)); });
  return result;
}

template <class Number>
Matrix<Number> columns_of(const Matrix<Number>& m, std::int64_t first, std::int64_t count) {
  return by_rows<Number>(m.rows, count, [&](std::int64_t i, Number* to) { std::copy_n(m.row(i) + first, count, to); });
}

// The given rows, in their order. A matrix without rows stays as it is.
template <class Number>
Matrix<Number> chosen_rows(const Matrix<Number>& m, const std::vector<std::int64_t>& rows) {
  if (m.rows == 0) return {};
  return by_rows<Number>(std::ssize(rows), m.columns, [&](std::int64_t i, Number* to) {
    std::copy_n(m.row(rows[static_cast<std::size_t>(i)]), m.columns, to);
  });
}

template <class Number>
Matrix<Number> chosen_columns(const Matrix<Number>& m, const std::vector<std::int64_t>& columns) {
  return by_rows<Number>(m.rows, std::ssize(columns), [&](std::int64_t i, Number* to) {
    for (const std::int64_t column : columns) *to++ = m.row(i)[column];
  });
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
  return by_rows<Number>(m.rows, m.columns, [&](std::int64_t i, Number* to) { std::copy(m.row(i), m.row(i + 1), to); });
}

// Appends the columns of b to each row of a; an empty matrix counts as none.
template <class Number>
Matrix<Number> side_by_side(const Matrix<Number>& a, const Matrix<Number>& b) {
  if (a.columns == 0) return b;
  return by_rows<Number>(a.rows, a.columns + b.columns, [&](std::int64_t i, Number* to) {
    std::copy_n(b.row(i), b.columns, std::copy_n(a.row(i), a.columns, to));
  });
}

// Appends the rows of b to those of a.
template <class Number>
Matrix<Number> stacked(const Matrix<Number>& a, const Matrix<Number>& b) {
  if (a.rows == 0) return b;
  return by_rows<Number>(a.rows + b.rows, b.columns, [&](std::int64_t i, Number* to) {
    std::copy_n(i < a.rows ? a.row(i) : b.row(i - a.rows), b.columns, to);
  });
}

// Rounds every element to the type.
void round_to(DType type, Matrix<float>& m);

}  // namespace fovea::verification
