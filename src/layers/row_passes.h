// The row passes of a layer: which run behind a projection in forward, and behind the gradient of a source in backward.
#pragma once

#include <initializer_list>

#include "heads/devices.h"
#include "layers/views.h"

namespace fovea::layers {

// The passes of a device, and the run that they belong to.
struct RunOfPasses {
  const heads::Passes& passes;
  const core::RunContext& context;

  void forward(const heads::RowPass& pass) const;
  void backward(const heads::RowPassBackward& pass) const;
  void sum(const heads::WeightGradient& gradient) const;

 private:
  void tell(std::initializer_list<TensorView> rows) const;  // that the pass reads and writes
};

// Forward: norms and rotary embedding of the result of one projection.
void transform_result(const Views& views, const LayerProblem& problem, const Step& step, const LayerNorms& norms,
                      const RunOfPasses& run);

// Backward: of q and k, from the gradients that attention has written.
void differentiate_heads(const Views& views, const LayerProblem& problem, const AttentionProblem& written,
                         const LayerBackwardTensors& tensors, const RunOfPasses& run);

// Backward: of a latent, once all projections that read it have added to its gradient.
void differentiate_latent(const Views& views, const LayerProblem& problem, Source latent,
                          const LayerBackwardTensors& tensors, const RunOfPasses& run);

}  // namespace fovea::layers
