// A grouped-query attention layer learns: forward keeps its state in a buffer of the caller, backward gives the
// gradient of every weight, and gradient descent brings the loss down.
#include <fovea/layers.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

// A weight [rows, columns] and its gradient.
struct Parameter {
  Parameter(std::int64_t rows, std::int64_t columns)
      : sizes{1, 1, rows, columns}, weight(static_cast<std::size_t>(rows * columns)), gradient(weight.size()) {
    std::mt19937 random(static_cast<unsigned>(rows));
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(columns)));
    for (float& value : weight) value = normal(random);
  }
  fovea::Projection projection() { return {.weight = fovea::contiguous(weight.data(), sizes)}; }
  fovea::ProjectionGradient projection_gradient() { return {.weight = fovea::contiguous(gradient.data(), sizes)}; }

  fovea::Sizes sizes;
  std::vector<float> weight, gradient;
};

int main() {
  const std::int64_t length = 32, width = 64, dim = 16, heads_q = 4, heads_kv = 2;
  Parameter q(heads_q * dim, width), k(heads_kv * dim, width), v(heads_kv * dim, width), out(width, heads_q * dim);
  const fovea::LayerParameters parameters{
      .q = q.projection(), .k = k.projection(), .v = v.projection(), .out = out.projection()};
  const fovea::LayerGradients gradients{.q = q.projection_gradient(),
                                        .k = k.projection_gradient(),
                                        .v = v.projection_gradient(),
                                        .out = out.projection_gradient()};
  std::vector<float> x(length * width), y(x.size()), dy(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  const auto tensor = [&](std::vector<float>& data) { return fovea::contiguous(data.data(), {1, 1, length, width}); };

  const fovea::LayerOptions options{
      .kind = fovea::LayerKind::gqa, .heads_q = heads_q, .heads_kv = heads_kv, .mask = fovea::Mask::causal};
  fovea::LayerForwardTensors forward{.x = tensor(x), .parameters = parameters, .y = tensor(y)};
  const std::int64_t bytes = fovea::saved_bytes(fovea::describe(forward, options));
  const std::unique_ptr<void, decltype(&std::free)> saved(
      std::aligned_alloc(64, static_cast<std::size_t>((bytes + 63) / 64 * 64)), std::free);
  forward.saved = {saved.get(), bytes};
  const fovea::LayerBackwardTensors backward{
      .x = tensor(x), .parameters = parameters, .dy = tensor(dy), .gradients = gradients, .saved = forward.saved};

  double first = 0, loss = 0;
  for (int step = 0; step < 50; ++step) {
    fovea::layer_forward(forward, options);
    loss = 0;  // half the mean square of y - x
    for (std::size_t i = 0; i < y.size(); ++i) {
      const float error = y[i] - x[i];
      loss += 0.5 * error * error / static_cast<double>(y.size());
      dy[i] = error / static_cast<float>(y.size());
    }
    if (step == 0) first = loss;
    fovea::layer_backward(backward, options);
    for (Parameter* one : {&q, &k, &v, &out}) {
      for (std::size_t i = 0; i < one->weight.size(); ++i) one->weight[i] -= 0.5f * one->gradient[i];
    }
  }
  const bool learned = loss < first / 2;
  std::printf("50 steps bring the loss from %.3f to %.3f: it %s\n", first, loss, learned ? "learns" : "does not learn");
  return learned ? 0 : 1;
}
