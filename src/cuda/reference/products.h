// Products of matrices on a GPU, to be enqueued: in double precision, or with the roundings of a plain evaluation.
#pragma once

#include "cuda/reference/device_matrix.h"
#include "cuda/reference/plain_form.h"

namespace fovea::cuda::reference {

// result [rows, columns] = a [rows, terms] times b [terms, columns], plus `added` if it has data. With a form, every
// sum has the same bits as on the CPU; sums of a fused one start from `added`. `result` must not overlap a or b.
void write_product(const DeviceMatrix<double>& a, const DeviceMatrix<double>& b, const DeviceMatrix<double>& added,
                   const DeviceMatrix<double>& result);
void write_product(const DeviceMatrix<double>& a, const DeviceMatrix<float>& b, const DeviceMatrix<double>& added,
                   const DeviceMatrix<double>& result);
void write_product(const DeviceMatrix<float>& a, const DeviceMatrix<float>& b, const DeviceMatrix<float>& added,
                   const DeviceMatrix<float>& result, const PlainForm& form);

}  // namespace fovea::cuda::reference
