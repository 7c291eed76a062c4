// Attention's problem line:
//   op=attention pass=fwd b=2 hq=32 hkv=8 lq=4096 lk=4096 d=128 dv=128 dtype=bf16 mask=causal layout=bhld
//   scale=0.088388347648318447 device=cpu
// After a window come its bounds: mask=window left=1023 right=0.
#pragma once

#include <string>

#include "core/problem_line.h"
#include "fovea/problem.h"

namespace fovea::core {

const KeyTable& attention_keys();

// pass=e2e becomes a forward problem.
AttentionProblem attention_problem(const LineValues& values);
LineValues values_of(const AttentionProblem& problem);

std::string line_of(const AttentionProblem& problem);

}  // namespace fovea::core
