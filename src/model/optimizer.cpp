// Splits every parameter into tasks of a few thousand elements.
#include "model/optimizer.h"

#include <algorithm>
#include <cmath>

#include "model/row_passes.h"

namespace fovea::model {
namespace {

constexpr std::int64_t kElements = 1 << 14;  // of a task

}  // namespace

void clear_gradients(Model& model) { std::ranges::fill(model.gradients(), 0.0f); }

double update(Model& model, const AdamW& s, double learning_rate, std::int64_t step, const core::RunContext& context) {
  const double norm = norm_of(model.gradients(), context);
  if (!std::isfinite(norm)) return norm;
  const auto t = static_cast<double>(step + 1);
  cpu::AdamWTask all{.weight = model.weights().data(),
                     .m = model.first_moment().data(),
                     .v = model.second_moment().data(),
                     .gradient = model.gradients().data(),
                     .gradient_factor = static_cast<float>(norm > s.largest_norm ? s.largest_norm / norm : 1.0),
                     .rest1 = static_cast<float>(1 - s.beta1),
                     .rest2 = static_cast<float>(1 - s.beta2),
                     .beta2 = static_cast<float>(s.beta2),
                     .step_size = static_cast<float>(learning_rate / (1 - std::pow(s.beta1, t))),
                     .v_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(s.beta2, t))),
                     .epsilon = static_cast<float>(s.epsilon)};
  std::vector<cpu::AdamWTask> tasks;
  for (const Parameter& one : model.map().all()) {
    for (std::int64_t first = 0; first < one.count(); first += kElements) {
      cpu::AdamWTask task = all;
      const std::int64_t at = one.offset + first;
      task.weight += at, task.m += at, task.v += at, task.gradient += at;
      task.count = std::min(kElements, one.count() - first);
      task.decay = static_cast<float>(one.is_vector ? 1.0 : 1 - learning_rate * s.weight_decay);
      tasks.push_back(task);
    }
  }
  adamw(tasks, context);
  return norm;
}

}  // namespace fovea::model
