// A case on the current GPU: inputs made from its line, results full of NaN.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "cuda/measure/device_memory.h"
#include "fovea/attention.h"
#include "threads_at_once.h"
#include "verification/attention/case_tensors.h"

namespace fovea::cuda {

class DeviceCall {
 public:
  explicit DeviceCall(const verification::AttentionCase& c) : DeviceCall(c, c.problem.dtype) {}

  // `result` is the type of out and of the gradients.
  DeviceCall(const verification::AttentionCase& c, DType result) : host_(verification::make_tensors(c, result)) {
    forward = host_.forward();
    backward = host_.backward();
    options = verification::options_of(c);
    options.implementation = "cuda.any";
    for (TensorView* input : {&forward.q, &forward.k, &forward.v, &backward.dout}) place(*input, true);
    backward.q = forward.q, backward.k = forward.k, backward.v = forward.v;
    for (MutableTensorView* output : {&forward.out, &forward.lse, &backward.dq, &backward.dk, &backward.dv})
      place(*output, false);
    backward.out = forward.out, backward.lse = forward.lse;
  }

  // Every byte of every tensor.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const DeviceMemory& one : memory_) {
      std::vector<std::byte> part(static_cast<std::size_t>(one.bytes()));
      one.download(part.data());
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // The host's tensors. What is written to the inputs there reaches the device by upload_inputs().
  const verification::CaseTensors& host() const { return host_; }
  void upload_inputs() {
    const MutableTensorView* const inputs[] = {&host_.q.view(), &host_.k.view(), &host_.v.view(), &host_.dout.view()};
    for (std::size_t i = 0; i < kInputs; ++i) upload(memory_[i], inputs[i]->data, inputs[i]->buffer_bytes);
  }

  // The host's tensors, outputs as the device has them now.
  const verification::CaseTensors& fetch() {
    const MutableTensorView* const outputs[] = {&host_.out.view(), &host_.lse.view(), &host_.dq.view(),
                                                &host_.dk.view(), &host_.dv.view()};
    for (std::size_t i = 0; i < 5; ++i) {
      const DeviceMemory& memory = memory_[kInputs + i];
      std::vector<std::byte> all(static_cast<std::size_t>(memory.bytes()));
      memory.download(all.data());
      std::copy_n(all.begin(), outputs[i]->buffer_bytes, static_cast<std::byte*>(outputs[i]->data));
    }
    return host_;
  }

  // NaN again in the results of a pass.
  void poison(Pass pass) {
    for (std::size_t i = pass == Pass::forward ? kInputs : kInputs + 2; i < memory_.size(); ++i) memory_[i].poison();
  }

  ForwardTensors forward;
  BackwardTensors backward;
  AttentionOptions options;

 private:
  template <class View>
  void place(View& view, bool is_input) {
    DeviceMemory& memory = memory_.emplace_back(view.buffer_bytes + kRoom);
    memory.poison();
    upload(memory, view.data, is_input ? view.buffer_bytes : 0);
    view.data = memory.data();
    view.device = {DeviceKind::cuda, current_device()};
  }

  // The first `count` bytes come from the host, the others are NaN.
  static void upload(DeviceMemory& memory, const void* from, std::int64_t count) {
    std::vector<std::byte> all(static_cast<std::size_t>(memory.bytes()), std::byte{0xff});
    std::copy_n(static_cast<const std::byte*>(from), count, all.begin());
    memory.upload(all.data());
  }

  static constexpr std::size_t kInputs = 4;  // q, k, v, dout, before out, lse, dq, dk, dv
  static constexpr std::int64_t kRoom = 16;  // for tensors that are moved by less
  verification::CaseTensors host_;
  std::vector<DeviceMemory> memory_;
};

}  // namespace fovea::cuda
