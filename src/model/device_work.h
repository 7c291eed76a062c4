// What a device does for a model beside products and attention: memory, copies, and the passes between the calls.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/plan.h"
#include "cpu/kernels/model_kernels.h"
#include "model/clipping.h"

namespace fovea::model {

// Sequences one after another: each has Extent::length tokens, and for each token the one that follows.
struct Batch {
  std::span<const std::int32_t> tokens, targets;
};

// A step of AdamW on all weights. The device computes the tasks' gradient_factor; tasks do not overlap.
struct Update {
  std::span<const float> gradients;
  double largest_norm = 0;  // infinity: never scaled
  std::span<const cpu::AdamWTask> tasks;
  float* square_sums = nullptr;  // on a GPU: square_sum_count() floats
  Clipping* clipping = nullptr;  // written; if its norm is not finite, the tasks change nothing
};

// Pointers are to the device's memory, except `from` of write and `to` of read. Everything happens in the order of the
// context's stream. On a GPU write, read and wait return when the stream's work has ended, send waits as told below,
// and everything else is enqueued. Sums have a fixed order.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;

  virtual void* memory() const = 0;  // one block, of the bytes that the work was made with

  virtual void clear(void* to, std::int64_t bytes, const core::RunContext& context) const = 0;
  virtual void write(void* to, const void* from, std::int64_t bytes, const core::RunContext& context) const = 0;
  virtual void read(void* to, const void* from, std::int64_t bytes, const core::RunContext& context) const = 0;

  virtual void wait(const core::RunContext& context) const = 0;  // for all that was enqueued

  // Copies a batch: its tokens, then its targets. It may change as soon as the call returns. The host waits for the
  // copy of the batch before, and for nothing else.
  virtual void send(std::int32_t* to, const Batch& batch, const core::RunContext& context) = 0;

  virtual void rms_norm(const cpu::RmsNormTask& task, const core::RunContext& context) const = 0;
  // `partials` has partial_count() floats.
  virtual void rms_norm_backward(const cpu::RmsNormBackwardTask& task, float* partials,
                                 const core::RunContext& context) const = 0;
  virtual void swiglu(const cpu::SwigluTask& task, const core::RunContext& context) const = 0;
  virtual void swiglu_backward(const cpu::SwigluBackwardTask& task, const core::RunContext& context) const = 0;
  virtual void gather(const cpu::GatherTask& task, const core::RunContext& context) const = 0;
  virtual void scatter(const cpu::ScatterTask& task, const core::RunContext& context) const = 0;
  virtual void cross_entropy(const cpu::CrossEntropyTask& task, const core::RunContext& context) const = 0;
  virtual void round(std::uint16_t* to, const float* from, std::int64_t count,
                     const core::RunContext& context) const = 0;  // to bf16
  virtual void update(const Update& update, const core::RunContext& context) const = 0;
};

// Throw Error: out_of_memory with the bytes wanted; unsupported for a GPU that is not there. `rows` of a batch.
std::unique_ptr<DeviceWork> work_on_host(std::int64_t bytes);
std::unique_ptr<DeviceWork> work_on(Device device, std::int64_t bytes, std::int64_t rows);

// Floats of memory that passes of a device need for their sums.
std::int64_t partial_count(DeviceKind device, std::int64_t rows, std::int64_t columns);  // of rms_norm_backward
std::int64_t square_sum_count(DeviceKind device, std::int64_t gradients);

}  // namespace fovea::model
