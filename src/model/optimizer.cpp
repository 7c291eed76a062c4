// Every parameter is a task of its own.
#include "model/optimizer.h"

#include <cmath>
#include <vector>

namespace fovea::model {

void begin_update(Model& model, const AdamW& s, double learning_rate, std::int64_t step,
                  const core::RunContext& context) {
  const auto t = static_cast<double>(step + 1);
  const cpu::AdamWTask all{.weight = model.weights().data(),
                           .m = model.first_moment().data(),
                           .v = model.second_moment().data(),
                           .gradient = model.gradients().data(),
                           .gradient_factor = 1,
                           .rest1 = static_cast<float>(1 - s.beta1),
                           .rest2 = static_cast<float>(1 - s.beta2),
                           .beta2 = static_cast<float>(s.beta2),
                           .step_size = static_cast<float>(learning_rate / (1 - std::pow(s.beta1, t))),
                           .v_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(s.beta2, t))),
                           .epsilon = static_cast<float>(s.epsilon),
                           .rounded = model.rounded()};
  std::vector<cpu::AdamWTask> tasks;
  for (const Parameter& one : model.map().all()) {
    cpu::AdamWTask& task = tasks.emplace_back(all);
    task.weight += one.offset, task.m += one.offset, task.v += one.offset, task.gradient += one.offset;
    if (task.rounded != nullptr) task.rounded += one.offset;
    task.count = one.count();
    task.decay = static_cast<float>(one.is_vector ? 1.0 : 1 - learning_rate * s.weight_decay);
  }
  model.work().update({.gradients = model.gradients(),
                       .largest_norm = s.largest_norm,
                       .tasks = tasks,
                       .square_sums = model.square_sums(),
                       .clipping = model.clipping()},
                      context);
}

double update_bytes(const Model& model) {
  constexpr double kFloats = 2 + 3 * 2, kRounded = 2;
  const auto parameters = static_cast<double>(model.map().count());
  return parameters * (kFloats * sizeof(float) + (model.rounded() == nullptr ? 0 : kRounded));
}

double gradient_norm(const Model& model, const core::RunContext& context) {
  Clipping clipping;
  model.work().read(&clipping, model.clipping(), static_cast<std::int64_t>(sizeof clipping), context);
  return clipping.norm;
}

double update(Model& model, const AdamW& settings, double learning_rate, std::int64_t step,
              const core::RunContext& context) {
  begin_update(model, settings, learning_rate, step, context);
  return gradient_norm(model, context);
}

}  // namespace fovea::model
