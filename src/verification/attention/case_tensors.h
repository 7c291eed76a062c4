// The tensors of an attention case on the host, in the form of the public calls: inputs filled, outputs poisoned.
#pragma once

#include <cstdint>

#include "fovea/attention.h"
#include "verification/attention/case.h"
#include "verification/host_tensor.h"

namespace fovea::verification {

struct CaseTensors {
  HostTensor q, k, v, dout;  // inputs
  HostTensor out, lse;       // outputs of forward, inputs of backward
  HostTensor delta;          // optional input of backward; empty unless the caller makes it
  HostTensor dq, dk, dv;     // outputs of backward
  HostTensor saved;          // empty unless the case's implementation saves state
  ForwardTensors forward() const;
  BackwardTensors backward() const;
  bool padding_intact() const;  // of all tensors that a call may write
};

// `result` is the type of out and of the gradients.
CaseTensors make_tensors(const AttentionCase& c, DType result);
inline CaseTensors make_tensors(const AttentionCase& c) { return make_tensors(c, c.problem.dtype); }

AttentionOptions options_of(const AttentionCase& c);

}  // namespace fovea::verification
