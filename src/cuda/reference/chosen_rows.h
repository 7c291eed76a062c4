// The reference on the first GPU, in double precision, for chosen rows and keys. Answers to large problems are compared
// with it; it is itself checked against the CPU's reference.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/reference/kernels.h"
#include "fovea/attention.h"

namespace fovea::cuda::reference {

// Tensors lie on the host, as for reference::Head; the same rules hold where backward's lse, out or delta are missing.
// Both wait for the device. Where the device has not the memory for a copy of the tensors, they throw
// Error(out_of_memory).
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
