// The tensors of one call and their checks. An array: every call makes this list and must not allocate for it.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "core/tensor_checks.h"

namespace fovea::core {

template <std::size_t kMost>
class TensorList : public Validator {
 public:
  using Validator::Validator;

  template <class Pointer>
  const TensorArg& add(std::string_view name, const BasicTensorView<Pointer>& view, bool is_output = false) {
    TensorArg& one = tensors_[count_++];
    one.name = name, one.view = view, one.is_output = is_output;
    return one;
  }
  // Null if there is none.
  template <class Pointer>
  const TensorArg* add_if_given(std::string_view name, const BasicTensorView<Pointer>& view, bool is_output = false) {
    return view ? &add(name, view, is_output) : nullptr;
  }
  std::span<TensorArg> tensors() { return {tensors_.data(), count_}; }

  void check_each() {
    for (TensorArg& one : tensors()) check_given(one);
    for (TensorArg& one : tensors()) check_tensor(one);
  }

  // Devices, threads and buffers, once each tensor is known to be sound. A call without saved state gives none.
  void check_rest(Device device, int threads, const ExternalThreadPool* thread_pool, const Buffer& workspace) {
    for (const TensorArg& one : tensors()) check_device(one, device);
    check_threads(threads, thread_pool);
    check_buffer("workspace", workspace, kOwnPool);
    check_overlap(tensors());
  }

 private:
  std::array<TensorArg, kMost> tensors_;
  std::size_t count_ = 0;
};

}  // namespace fovea::core
