// The calls of Linear and of the attention layer that every block of a model makes, planned once.
#pragma once

#include <cstdint>

#include "fovea/layers.h"
#include "fovea/linear.h"
#include "model/config.h"

namespace fovea::model {

// The attention layer of a block, without tensors.
LayerOptions attention_options(const Config& config);

// The gradients of a call are written, or those of its parameters are added to what is there, in fp32.
struct BackwardPlans {
  Plan written, added;

  const Plan& plan(bool accumulate) const { return accumulate ? added : written; }
};

// A product y = x weight^T without bias, and its gradients.
struct ProductCalls {
  explicit ProductCalls(const LinearProblem& forward_problem);

  Plan forward;
  BackwardPlans backward;
  double forward_flops = 0, backward_flops = 0;
};

struct Calls {
  // Throws Error(unsupported) if the device is not there.
  Calls(const Config& config, const Extent& extent, Device device = {});

  Device device;
  Plan attention_forward;
  BackwardPlans attention_backward;
  std::int64_t attention_saved_bytes = 0;
  double attention_forward_flops = 0, attention_backward_flops = 0;  // of one block
  ProductCalls gate_up, down, head;
  ProductCalls qkv, out;                         // of the attention layer, which makes these products itself
  double forward_flops = 0, backward_flops = 0;  // of all calls of a pass, those that run again included

  double recomputed_flops() const;       // of one block that runs again
  std::int64_t workspace_bytes() const;  // of the call that needs most
};

}  // namespace fovea::model
