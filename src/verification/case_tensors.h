// The tensors of a case on the host: inputs made from the case's seed, outputs poisoned, placed as the case says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/problem_line.h"
#include "fovea/attention.h"

namespace fovea::verification {

// One tensor with its memory. The NaN patterns between rows and, for the guarded placements, the protected page right
// after (or before) the data make reads and writes outside the tensor visible.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(const Sizes& sizes, DType dtype, const core::Case& c, bool is_output);

  const MutableTensorView& view() const { return view_; }
  void poison();                // every byte of the allocation to NaN patterns
  bool padding_intact() const;  // nothing but the tensor's own elements was written since poison()

 private:
  std::shared_ptr<std::byte> memory_;
  std::int64_t allocated_bytes_ = 0;
  MutableTensorView view_;
};

struct CaseTensors {
  HostTensor q, k, v, dout;  // inputs
  HostTensor out, lse;       // outputs of forward, inputs of backward
  HostTensor delta;          // optional input of backward; empty unless the caller makes it
  HostTensor dq, dk, dv;     // outputs of backward
  HostTensor saved;          // empty unless the case's implementation saves state
  ForwardTensors forward() const;
  BackwardTensors backward() const;
  bool padding_intact() const;  // of everything that a call may write
};

// `result` is the type of out and of the gradients.
CaseTensors make_tensors(const core::Case& c, DType result);
inline CaseTensors make_tensors(const core::Case& c) { return make_tensors(c, c.problem.dtype); }

// Memory for the state that an implementation keeps between forward and backward.
HostTensor make_saved(std::int64_t bytes);

enum class Role : std::uint8_t { q, k, v, dout, dq, dk, dv };  // dq, dk, dv: what gradients accumulate into

// Fills a tensor of any strides with the values that the case gives to this role. Dimensions of stride 0 hold the
// values of their index 0.
void fill_input(const core::Case& c, Role role, const MutableTensorView& view);

AttentionOptions options_of(const core::Case& c);

}  // namespace fovea::verification
