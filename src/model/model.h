// A decoder-only transformer on the CPU, in fp32: its weights, the loss of a batch, and the gradients of all weights.
//
//   x = embedding[token]
//   each block: x += attention(norm(x)), causal and rotary; x += down (silu(gate norm(x)) * (up norm(x)))
//   logits = head norm(x), loss = the mean of -log softmax(logits)[target], natural logarithm
//
// Sources: Vaswani et al., arXiv 1706.03762; Xiong et al., arXiv 2002.04745 (norms before the branches); Touvron et
// al., arXiv 2302.13971, 2.2 (RMSNorm, SwiGLU, rotary embedding); its parts name their own.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/memory.h"
#include "core/plan.h"
#include "model/memory_plan.h"

namespace fovea::model {

// Sequences one after another: each has Extent::length tokens, and for each token the one that follows.
struct Batch {
  std::span<const std::int32_t> tokens, targets;
};

// A part of a pass that has ended: embedding, norm, attention, gate_up, swiglu, down, head, loss.
struct PassPart {
  std::string_view name;
  double flops = 0;  // as forward_flops() counts them; 0 for parts without products
};

// Owns one block of memory for everything (MemoryPlan). The same bits for any number of threads. Not for use by several
// threads at once.
class Model {
 public:
  // Begins with initialize(.., seed, ..). Throws Error: invalid_argument for sizes, out_of_memory.
  Model(const Config& config, const Extent& extent, std::uint64_t seed);

  const Config& config() const { return config_; }
  const Extent& extent() const { return extent_; }
  const ParameterMap& map() const { return map_; }
  const MemoryPlan& memory() const { return memory_; }

  std::span<float> weights() { return flat(memory_.weights); }
  std::span<float> gradients() { return flat(memory_.gradients); }
  std::span<float> first_moment() { return flat(memory_.first_moment); }
  std::span<float> second_moment() { return flat(memory_.second_moment); }

  // Floating-point operations of the products and of attention, two for each multiply-add.
  double forward_flops() const { return calls_.forward_flops; }
  double backward_flops() const { return calls_.backward_flops; }

  // Tells of every part of the passes that follow, in their order, on the calling thread.
  void watch_parts(std::function<void(const PassPart&)> watch) { watch_ = std::move(watch); }

  // The loss of each token in the order of the batch. This and the calls below throw Error(invalid_argument) for a
  // batch of other sizes or a token outside of the vocabulary, and Error(cancelled).
  std::vector<double> losses(const Batch& batch, const core::RunContext& context);

  // The mean loss. Keeps what backward needs for the gradient of factor * mean loss; with factor 0, what that gradient
  // alone needs is left out.
  double forward(const Batch& batch, double factor, const core::RunContext& context);

  // Adds the gradient to gradients(). The last call of forward had the same batch, and a factor other than 0.
  void backward(const Batch& batch, const core::RunContext& context);

  // Both, one after the other.
  double add_gradients(const Batch& batch, double factor, const core::RunContext& context);

 private:
  struct Run;

  std::span<float> flat(std::int64_t offset) { return {at(offset), static_cast<std::size_t>(map_.floats())}; }
  float* at(std::int64_t offset) { return reinterpret_cast<float*>(static_cast<char*>(arena_.data()) + offset); }
  void check_batch(const Batch& batch) const;

  Config config_;
  Extent extent_;
  ParameterMap map_;
  Calls calls_;
  MemoryPlan memory_;
  core::WorkspaceLease arena_;
  std::function<void(const PassPart&)> watch_;
};

}  // namespace fovea::model
