// Linear's problem line:
//   op=linear pass=bwd b=2 m=512 k=1024 n=3072 h=16 dtype=bf16 bias=yes accumulate=no layout=blhd device=cpu
// y = x weight^T + bias with b * m rows, k columns of x and n columns of y in h heads. Only lines with gradients say
// whether they accumulate.
#pragma once

#include "core/problem_line.h"
#include "fovea/linear.h"

namespace fovea::linear {

const core::KeyTable& linear_keys();

// pass=e2e is a forward problem.
LinearProblem problem_of(const core::LineValues& values);

std::string line_of(const LinearProblem& problem);

}  // namespace fovea::linear
