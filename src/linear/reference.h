// The definition of Linear in double precision, one row of a result at a time, so that a sample can be computed.
#pragma once

#include <cstdint>

#include "fovea/linear.h"

namespace fovea::linear {

// Row r is element (r / len, r % len) of (batch, len). Each writes one row, widened: y [columns_out], dx [columns_in],
// dweight [columns_in] of output column `column`, and the whole dbias [columns_out].
void reference_y(const LinearForwardTensors& tensors, std::int64_t row, double* y);
void reference_dx(const LinearBackwardTensors& tensors, std::int64_t row, double* dx);
void reference_dweight(const LinearBackwardTensors& tensors, std::int64_t column, double* dweight);
void reference_dbias(const LinearBackwardTensors& tensors, double* dbias);

// The plain evaluation in the same precision, whose error sets the tolerance: every sum in fp32, term by term in order,
// and the result rounded to its type.
void plain_y(const LinearForwardTensors& tensors, std::int64_t row, double* y);
void plain_dx(const LinearBackwardTensors& tensors, std::int64_t row, double* dx);
void plain_dweight(const LinearBackwardTensors& tensors, std::int64_t column, double* dweight);
void plain_dbias(const LinearBackwardTensors& tensors, double* dbias);

}  // namespace fovea::linear
