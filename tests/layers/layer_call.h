// A layer with random inputs, its calls, and memory for everything that they write.
#pragma once

#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fovea/layers.h"
#include "layers/norms.h"
#include "layers/projections.h"
#include "linear/linear_tensors.h"

namespace fovea::layers {

using linear::Order;
using linear::TestTensor;

struct Shape {
  LayerKind kind = LayerKind::mha_fused;
  std::int64_t batch = 2, len_q = 7, len_k = 7, width = 12, width_kv = 12, heads_q = 4, heads_kv = 4, dim_qk = 3,
               dim_v = 3, latent_q = 0, latent_kv = 0;
  bool cross = false, bias = true;
  DType dtype = DType::fp32, result = DType::fp32;
  Mask mask = Mask::none;
  Order order = Order::dense;
  std::int64_t dim_shared = 0;
  std::optional<Rotary> rotary = {};
  bool qk_norm = false, latent_norm = false;
};

// The shape's rotary embedding with its columns counted, as a problem has it.
inline std::optional<Rotary> counted(const Shape& s) {
  std::optional<Rotary> rotary = s.rotary;
  if (rotary && rotary->columns == 0) rotary->columns = s.dim_shared > 0 ? s.dim_shared : s.dim_qk;
  return rotary;
}

inline LayerProblem problem_of(const Shape& s) {
  const NormFacts qk{.given = s.qk_norm}, latent{.given = s.latent_norm};
  return {.kind = s.kind,
          .batch = s.batch,
          .len_q = s.len_q,
          .len_k = s.len_k,
          .width = s.width,
          .width_kv = s.width_kv,
          .heads_q = s.heads_q,
          .heads_kv = s.heads_kv,
          .dim_qk = s.dim_qk,
          .dim_v = s.dim_v,
          .latent_q = s.latent_q,
          .latent_kv = s.latent_kv,
          .dtype = s.dtype,
          .result_dtype = s.result,
          .parameter_dtype = s.result,
          .mask = s.mask,
          .scale = 1.0 / std::sqrt(static_cast<double>(s.dim_qk)),
          .cross = s.cross,
          .dim_shared = s.dim_shared,
          .rotary = counted(s),
          .norms = {qk, qk, latent, latent},
          .epsilon = s.qk_norm || s.latent_norm ? LayerOptions{}.epsilon : 0};
}

// 64-byte aligned memory, with guards that tell whether something was written behind it.
class CallerMemory {
 public:
  explicit CallerMemory(std::int64_t bytes) : memory_(static_cast<std::size_t>(bytes) + 192, 0xa5), bytes_(bytes) {}
  Buffer buffer() { return {begin(), bytes_}; }
  bool guards_hold() {
    for (auto* p = begin() + bytes_; p < begin() + bytes_ + 64; ++p) {
      if (*p != 0xa5) return false;
    }
    return true;
  }

 private:
  unsigned char* begin() { return memory_.data() + (64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64) % 64; }
  std::vector<unsigned char> memory_;
  std::int64_t bytes_;
};

class LayerCall {
 public:
  explicit LayerCall(const Shape& s) : shape(s), saved(saved_bytes(problem_of(s))) {
    options = {.kind = s.kind, .heads_q = s.heads_q, .heads_kv = s.heads_kv, .mask = s.mask, .rotary = s.rotary};
    forward.x = input("x", {s.batch, 1, s.len_q, s.width}, 1, 1.0f);
    if (s.cross) forward.x_kv = input("x_kv", {s.batch, 1, s.len_k, s.width_kv}, 2, 1.0f);
    const PerProjection<Sizes> sizes = weight_sizes(problem_of(s));
    for (const Slot slot : kAllSlots) {
      const Sizes& weight = layers::at(sizes, slot);
      if (weight[2] == 0) continue;
      const std::string name(name_of(slot));
      const auto seed = 10 + 2 * static_cast<unsigned>(slot);
      Projection& projection = layers::at(forward.parameters, slot);
      projection.weight = input(name, weight, seed, 1.0f / std::sqrt(static_cast<float>(weight[3])));
      if (s.bias) projection.bias = input(name + ".bias", {1, 1, 1, weight[2]}, seed + 1, 0.3f);
      ProjectionGradient& gradient = layers::at(backward.gradients, slot);
      gradient.weight = result("d" + name, weight, s.result);
      if (s.bias) gradient.bias = result("d" + name + ".bias", {1, 1, 1, weight[2]}, s.result);
    }
    const PerNorm<Sizes> norms = norm_sizes(problem_of(s));
    for (const Norm norm : kAllNorms) {
      const bool of_heads = norm == Norm::q || norm == Norm::k;
      if (!(of_heads ? s.qk_norm : s.latent_norm)) continue;
      const std::string name = std::string(name_of(norm)) + ".norm";
      layers::at(forward.norms, norm) = input(name, layers::at(norms, norm), 40 + static_cast<unsigned>(norm), 1.0f);
      layers::at(backward.norm_gradients, norm) = result("d" + name, layers::at(norms, norm), s.result);
    }
    forward.y = result("y", forward.x.sizes, s.result);
    forward.saved = saved.buffer();
    backward.x = forward.x, backward.x_kv = forward.x_kv;
    backward.parameters = forward.parameters;
    backward.norms = forward.norms;
    backward.dy = input("dy", forward.x.sizes, 3, 1.0f);
    backward.dx = result("dx", forward.x.sizes, s.result);
    if (s.cross) backward.dx_kv = result("dx_kv", forward.x_kv.sizes, s.result);
    backward.saved = forward.saved;
  }

  void run_forward() const { layer_forward(forward, options); }
  void run_backward() const { layer_backward(backward, options); }
  void run() const { run_forward(), run_backward(); }

  TestTensor& tensor(const std::string& name) const { return *tensors_.at(name); }
  std::vector<float> values(const std::string& name) const { return tensors_.at(name)->all(); }
  // y and all gradients.
  std::map<std::string, std::vector<float>> results() const {
    std::map<std::string, std::vector<float>> all;
    for (const std::string& name : results_) all[name] = values(name);
    return all;
  }
  const std::map<std::string, std::shared_ptr<TestTensor>>& tensors() const { return tensors_; }
  std::int64_t gaps_written() const {
    std::int64_t written = 0;
    for (const auto& [name, one] : tensors_) written += one->gaps_written();
    return written;
  }

  Shape shape;
  CallerMemory saved;
  LayerOptions options;
  LayerForwardTensors forward;
  LayerBackwardTensors backward;

 private:
  MutableTensorView add(const std::string& name, const Sizes& sizes, DType dtype, unsigned seed) {
    const bool is_vector = sizes[2] == 1;
    const auto& one = tensors_[name] =
        std::make_shared<TestTensor>(sizes, dtype, is_vector ? Order::dense : shape.order, seed);
    return one->view;
  }
  MutableTensorView input(const std::string& name, const Sizes& sizes, unsigned seed, float factor) {
    const MutableTensorView view = add(name, sizes, shape.dtype, seed);
    TestTensor& one = *tensors_[name];
    one.for_each([&](std::int64_t i) { one.set(i, one.at(i) * factor); });
    return view;
  }
  MutableTensorView result(const std::string& name, const Sizes& sizes, DType dtype) {
    results_.push_back(name);
    return add(name, sizes, dtype, 0);
  }

  std::map<std::string, std::shared_ptr<TestTensor>> tensors_;
  std::vector<std::string> results_;
};

// Shapes of every kind: odd sizes, several heads, another sequence where a kind takes one.
inline std::vector<Shape> plain_shapes() {
  return {{.kind = LayerKind::mha_fused},
          {.kind = LayerKind::mha_fused,
           .batch = 1,
           .len_q = 65,
           .len_k = 65,
           .width = 40,
           .width_kv = 40,
           .heads_q = 2,
           .heads_kv = 2,
           .dim_qk = 16,
           .dim_v = 16,
           .mask = Mask::causal},
          {.kind = LayerKind::mha, .dim_v = 5},
          {.kind = LayerKind::mha, .len_k = 11, .width_kv = 9, .cross = true},
          {.kind = LayerKind::gqa, .heads_kv = 2, .mask = Mask::window(3, 1)},
          {.kind = LayerKind::gqa,
           .len_q = 5,
           .len_k = 9,
           .heads_q = 6,
           .heads_kv = 3,
           .dim_qk = 8,
           .dim_v = 8,
           .cross = true,
           .mask = Mask::causal_bottom_right},
          {.kind = LayerKind::mqa, .heads_kv = 1, .bias = false, .mask = Mask::causal},
          {.kind = LayerKind::mla, .latent_q = 6, .latent_kv = 6, .mask = Mask::causal},
          {.kind = LayerKind::mla,
           .len_k = 4,
           .width_kv = 10,
           .dim_qk = 8,
           .dim_v = 4,
           .latent_q = 5,
           .latent_kv = 7,
           .cross = true}};
}

// The same with rotary embedding, norms and a shared rotary key.
inline std::vector<Shape> transformed_shapes() {
  return {
      {.kind = LayerKind::mha_fused, .dim_qk = 4, .dim_v = 4, .rotary = Rotary{}},
      {.kind = LayerKind::mha_fused,
       .len_q = 40,
       .len_k = 40,
       .dim_qk = 6,
       .dim_v = 6,
       .mask = Mask::causal,
       .rotary = Rotary{.theta = 50, .pairs = RotaryPairs::halves, .columns = 4, .position_q = 30, .position_k = 29},
       .qk_norm = true},
      {.kind = LayerKind::mha, .qk_norm = true},
      {.kind = LayerKind::gqa,
       .len_k = 45,
       .width_kv = 10,
       .heads_kv = 2,
       .dim_qk = 8,
       .dim_v = 3,
       .cross = true,
       .rotary = Rotary{.pairs = RotaryPairs::halves, .position_q = 1000},
       .qk_norm = true},
      {.kind = LayerKind::mqa, .heads_kv = 1, .dim_qk = 4, .dim_v = 4, .rotary = Rotary{.position_k = 3}},
      {.kind = LayerKind::mla,
       .dim_qk = 4,
       .latent_q = 6,
       .latent_kv = 5,
       .rotary = Rotary{.pairs = RotaryPairs::halves},
       .qk_norm = true,
       .latent_norm = true},
      {.kind = LayerKind::mla,
       .len_q = 35,
       .len_k = 35,
       .dim_qk = 12,
       .dim_v = 8,
       .latent_q = 10,
       .latent_kv = 9,
       .mask = Mask::causal,
       .dim_shared = 4,
       .rotary = Rotary{.position_q = 100, .position_k = 100},
       .latent_norm = true},
      {.kind = LayerKind::mla,
       .len_k = 9,
       .width_kv = 10,
       .dim_qk = 5,
       .dim_v = 4,
       .latent_q = 5,
       .latent_kv = 7,
       .cross = true,
       .dim_shared = 2,
       .rotary = Rotary{.pairs = RotaryPairs::halves, .position_q = 3}}};
}

inline std::vector<Shape> shapes() {
  std::vector<Shape> all = plain_shapes();
  for (const Shape& shape : transformed_shapes()) all.push_back(shape);
  return all;
}

}  // namespace fovea::layers
