// One step of AdamW on all weights of a model, with clipping by the norm of all gradients.
#pragma once

#include "model/model.h"

namespace fovea::model {

struct AdamW {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0.1;  // of matrices; norms have none
  double largest_norm = 1.0;  // gradients of a larger norm are scaled down to it; infinity: never
};

// Updates weights and moments from gradients(). `step` counts from 0. Returns the gradients' norm before clipping; if
// that is not finite, nothing is changed.
double update(Model& model, const AdamW& settings, double learning_rate, std::int64_t step,
              const core::RunContext& context);

// Of memory that an update reads and writes: gradients twice; weights and moments, which it also writes; rounded
// weights.
double update_bytes(const Model& model);

// The two halves of update. On a GPU the first only enqueues work, and the second waits for it.
void begin_update(Model& model, const AdamW& settings, double learning_rate, std::int64_t step,
                  const core::RunContext& context);
double gradient_norm(const Model& model, const core::RunContext& context);

}  // namespace fovea::model
