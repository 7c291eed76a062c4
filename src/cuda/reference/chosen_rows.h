// The reference on the first GPU, in double precision, for chosen rows and keys. Answers to large problems are compared
// with it; it is itself checked against the CPU's reference.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/reference/kernels.h"
#include "fovea/attention.h"

namespace fovea::cuda::reference {

// Tensors are on the host, as for reference::Head, and backward's lse, out or delta may be missing by the same rules.
// Both functions wait for the device. They throw Error(out_of_memory) if a copy of the tensors does not fit the device.
struct ForwardRows {
  std::vector<double> out, lse;  // [rows, dim_v], [rows]
};
ForwardRows forward_rows(const AttentionProblem& problem, const ForwardTensors& tensors, const std::vector<Row>& rows);

struct BackwardRows {
  std::vector<double> dq, dk, dv;  // [rows, dim_qk], [keys, dim_qk], [keys, dim_v]
};
BackwardRows backward_rows(const AttentionProblem& problem, const BackwardTensors& tensors,
                           const std::vector<Row>& rows, const std::vector<Row>& keys);

}  // namespace fovea::cuda::reference
