// The calls of Linear and of the attention layer that every block of a model makes, planned once.
#pragma once

#include <cstdint>

#include "fovea/layers.h"
#include "fovea/linear.h"
#include "model/config.h"

namespace fovea::model {

// The attention layer of a block, without tensors.
LayerOptions attention_options(const Config& config);

// Of the attention layer that every block has; `accumulate` as of Model::backward.
LayerExplanation explain_attention(const Config& config, const Extent& extent, Device device, Pass pass,
                                   bool accumulate = false);

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
  double forward_bytes = 0, backward_bytes = 0;  // each matrix read or written once
};

struct Calls {
  // Throws Error(unsupported) if the device is not there.
  Calls(const Config& config, const Extent& extent, Device device = {});

  Device device;
  Plan attention_forward;
  BackwardPlans attention_backward;
  std::int64_t attention_saved_bytes = 0;
  double attention_forward_flops = 0, attention_backward_flops = 0;  // of the layer of one block
  double attention_forward_bytes = 0;
  ProductCalls gate_up, down, head;
  // SwiGLU runs between these two. Each has half of down.backward_flops.
  Plan down_dx;
  BackwardPlans down_dweight;
  double down_dx_bytes = 0, down_dweight_bytes = 0;
  ProductCalls qkv, out;                         // of the attention layer, which makes these products itself
  double forward_flops = 0, backward_flops = 0;  // of all calls of a pass, those that run again included

  // Of one block that runs again.
  double recomputed_flops() const;
  double recomputed_bytes() const;  // of its products and attention
  // Of the call that needs most, in one pass or in both.
  std::int64_t workspace_bytes(Pass pass) const;
  std::int64_t workspace_bytes() const;
};

}  // namespace fovea::model
