// A decoder-only transformer in fp32 or bf16, on the CPU or a GPU: its weights, the loss of a batch, and all gradients.
//
//   x = embedding[token]
//   each block: x += attention(norm(x)), causal and rotary; x += down (silu(gate norm(x)) * (up norm(x)))
//   logits = head norm(x), loss = the mean of -log softmax(logits)[target], natural logarithm
//
// Sources: Vaswani et al., arXiv 1706.03762; Xiong et al., arXiv 2002.04745 (norms before the branches); Touvron et
// al., arXiv 2302.13971, 2.2 (RMSNorm, SwiGLU, rotary embedding); Micikevicius et al., arXiv 1710.03740, 3.1 (fp32
// masters); Chen et al., arXiv 1604.06174 (checkpointed activations); its parts name their own.
// docs/kernels/model.md has the types of all arrays.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "model/device_work.h"
#include "model/memory_plan.h"

namespace fovea::model {

// Arrays that have a float for each parameter, in the order of the map.
enum class State : std::uint8_t { weights, gradients, first_moment, second_moment };

// A part of a pass that begins: embedding, norm, qkv, rotary, attention, out, gate_up, swiglu, down, head, loss;
// recompute, which is a checkpointed block that runs again.
struct PassPart {
  std::string_view name;
  double flops = 0;  // as forward_flops() counts them; 0 for parts without products
  double bytes = 0;  // of memory, if each array is read or written once
};

// Owns one block of memory for everything (MemoryPlan). Calls give the same bits for any number of threads. Only one
// thread may use a model at a time. On a GPU, work is enqueued on the context's stream, which must be the same for all
// calls; comments say where a call waits.
class Model {
 public:
  // Weights begin with random values that `seed` decides, the same bits on every device. Throws Error: invalid_argument
  // for sizes, unsupported for a device that is not there, out_of_memory.
  Model(const Config& config, const Extent& extent, std::uint64_t seed, Device device = {});

  const Config& config() const { return config_; }
  const Extent& extent() const { return extent_; }
  const ParameterMap& map() const { return map_; }
  const MemoryPlan& memory() const { return memory_; }
  Device device() const { return calls_.device; }

  // Memory of the device. Of a model on the CPU it may be read and written; but weights of a bf16 model have a copy, so
  // they are changed by write() and by the optimizer only.
  std::span<float> weights() { return state(State::weights); }
  std::span<float> gradients() { return state(State::gradients); }
  std::span<float> first_moment() { return state(State::first_moment); }
  std::span<float> second_moment() { return state(State::second_moment); }
  std::span<float> state(State which);

  // Copies from and to the host, which wait for all earlier work. `values` has map().floats() elements.
  std::vector<float> read(State which, const core::RunContext& context);
  void write(State which, std::span<const float> values, const core::RunContext& context);

  // Floating-point operations of the products and of attention, two for each multiply-add.
  double forward_flops() const { return calls_.forward_flops; }
  double backward_flops() const { return calls_.backward_flops; }

  // From now on, passes call `watch` before each of their parts, on the calling thread. On a GPU the parts before are
  // then enqueued, not finished.
  void watch_parts(std::function<void(const PassPart&)> watch) { watch_ = std::move(watch); }

  // The loss of each token in the order of the batch. This and the calls below throw Error(invalid_argument) for a
  // batch of other sizes or a token outside of the vocabulary, and Error(cancelled).
  std::vector<double> losses(const Batch& batch, const core::RunContext& context);

  // The mean loss. Keeps what backward needs for the gradient of factor * mean loss; with factor 0, what that gradient
  // alone needs is left out.
  double forward(const Batch& batch, double factor, const core::RunContext& context);

  // The two halves of forward. On a GPU the first only enqueues work, and the second waits for it.
  void begin_forward(const Batch& batch, double factor, const core::RunContext& context);
  double mean_loss(const core::RunContext& context);
  // Of each token, in the order of the batch, after begin_forward.
  std::vector<double> token_losses(const core::RunContext& context) const;

  // Writes the gradient to gradients(), or adds it to what is there. The call before it was forward, of the same batch
  // and with a factor other than 0: backward overwrites activations. On a GPU it only enqueues work.
  void backward(const Batch& batch, const core::RunContext& context, bool accumulate = false);

  // Forward, then backward.
  double forward_backward(const Batch& batch, double factor, const core::RunContext& context, bool accumulate = false);

  // The products of a pass alone, to be timed beside the pass: in the same memory, in the same order. Activations and
  // gradients are then no longer those of a batch. On a GPU it only enqueues work.
  void run_products(Pass pass, const core::RunContext& context);

  // Returns when all work of the stream has ended.
  void wait(const core::RunContext& context) const { work_->wait(context); }

  // For the optimizer.
  const DeviceWork& work() const { return *work_; }
  float* square_sums() const { return floats(memory_.square_sums); }
  Clipping* clipping() const { return static_cast<Clipping*>(at(memory_.clipping)); }
  // The weights in bf16, with the map's layout; null in an fp32 model.
  std::uint16_t* rounded() const {
    return config_.dtype == DType::fp32 ? nullptr : static_cast<std::uint16_t*>(at(memory_.rounded));
  }

 private:
  struct Products;
  struct Run;

  void* at(std::int64_t offset) const { return static_cast<char*>(work_->memory()) + offset; }
  float* floats(std::int64_t offset) const { return static_cast<float*>(at(offset)); }
  void round_weights(const core::RunContext& context);
  void check_batch(const Batch& batch) const;

  Config config_;
  Extent extent_;
  ParameterMap map_;
  Calls calls_;
  MemoryPlan memory_;
  std::unique_ptr<DeviceWork> work_;
  std::function<void(const PassPart&)> watch_;
};

}  // namespace fovea::model
