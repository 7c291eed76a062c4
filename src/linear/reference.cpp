// Plain loops over single elements, written from the formulas of linear.h; the kernels share nothing with them.
#include "linear/reference.h"

#include "core/float16.h"

namespace fovea::linear {
namespace {

std::int64_t columns_of(const TensorView& t) { return t.sizes[1] * t.sizes[3]; }
std::int64_t rows_of(const TensorView& t) { return t.sizes[0] * t.sizes[2]; }

// The element in row (batch, len) and column (head, dim).
template <class Sum>
Sum at(const TensorView& t, std::int64_t row, std::int64_t column) {
  const std::int64_t index = row / t.sizes[2] * t.strides[0] + column / t.sizes[3] * t.strides[1] +
                             row % t.sizes[2] * t.strides[2] + column % t.sizes[3] * t.strides[3];
  return static_cast<Sum>(core::load_as_float(t.data, t.dtype, index));
}

double stored(double sum, DType) { return sum; }

double stored(float sum, DType type) {
  float memory = 0;
  core::store_from_float(&memory, type, 0, sum);
  return core::load_as_float(&memory, type, 0);
}

template <class Sum>
void find_y(const LinearForwardTensors& t, std::int64_t row, double* y) {
  for (std::int64_t n = 0; n < columns_of(t.y); ++n) {
    Sum sum = 0;
    for (std::int64_t k = 0; k < columns_of(t.x); ++k) sum += at<Sum>(t.x, row, k) * at<Sum>(t.weight, n, k);
    if (t.bias) sum += at<Sum>(t.bias, 0, n);
    y[n] = stored(sum, t.y.dtype);
  }
}

template <class Sum>
void find_dx(const LinearBackwardTensors& t, std::int64_t row, double* dx) {
  for (std::int64_t k = 0; k < columns_of(t.dx); ++k) {
    Sum sum = 0;
    for (std::int64_t n = 0; n < columns_of(t.dy); ++n) sum += at<Sum>(t.dy, row, n) * at<Sum>(t.weight, n, k);
    dx[k] = stored(sum, t.dx.dtype);
  }
}

template <class Sum>
void find_dweight(const LinearBackwardTensors& t, std::int64_t column, double* dweight) {
  for (std::int64_t k = 0; k < columns_of(t.x); ++k) {
    Sum sum = 0;
    for (std::int64_t row = 0; row < rows_of(t.dy); ++row) sum += at<Sum>(t.dy, row, column) * at<Sum>(t.x, row, k);
    dweight[k] = stored(sum, t.dweight.dtype);
  }
}

template <class Sum>
void find_dbias(const LinearBackwardTensors& t, double* dbias) {
  for (std::int64_t n = 0; n < columns_of(t.dy); ++n) {
    Sum sum = 0;
    for (std::int64_t row = 0; row < rows_of(t.dy); ++row) sum += at<Sum>(t.dy, row, n);
    dbias[n] = stored(sum, t.dbias.dtype);
  }
}

}  // namespace

void reference_y(const LinearForwardTensors& t, std::int64_t row, double* y) { find_y<double>(t, row, y); }
void reference_dx(const LinearBackwardTensors& t, std::int64_t row, double* dx) { find_dx<double>(t, row, dx); }
void reference_dweight(const LinearBackwardTensors& t, std::int64_t column, double* dweight) {
  find_dweight<double>(t, column, dweight);
}
void reference_dbias(const LinearBackwardTensors& t, double* dbias) { find_dbias<double>(t, dbias); }

void plain_y(const LinearForwardTensors& t, std::int64_t row, double* y) { find_y<float>(t, row, y); }
void plain_dx(const LinearBackwardTensors& t, std::int64_t row, double* dx) { find_dx<float>(t, row, dx); }
void plain_dweight(const LinearBackwardTensors& t, std::int64_t column, double* dweight) {
  find_dweight<float>(t, column, dweight);
}
void plain_dbias(const LinearBackwardTensors& t, double* dbias) { find_dbias<float>(t, dbias); }

}  // namespace fovea::linear
