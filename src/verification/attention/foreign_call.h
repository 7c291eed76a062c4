// Wraps a foreign C function for attention (fovea/bench_call.h) as a call.
#pragma once

#include "fovea/attention.h"
#include "verification/attention/case.h"
#include "verification/operation.h"

namespace fovea::verification {

// `settings.implementation` is ./lib.so:symbol. The call throws std::bad_alloc or Error for the codes that it returns.
Call attention_foreign_call(const AttentionCase& c, const ForwardTensors& forward, const BackwardTensors& backward,
                            const CallSettings& settings);

}  // namespace fovea::verification
