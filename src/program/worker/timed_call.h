// What a worker times: calls of a case on an implementation of the library, or on somebody's C function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "program/worker/owned_memory.h"
#include "verification/operation.h"

namespace fovea::program {

// How calls are prepared, beside the case.
struct TimedSettings {
  std::string implementation;  // or ./lib.so:symbol
  int threads = 1;
  void* stream = nullptr;    // of a GPU
  bool may_allocate = true;  // false: calls are captured in a graph
};

class TimedCall {
 public:
  // The tensors stay where they are for as long as this lives.
  TimedCall(const verification::Case& c, const verification::TensorSet& tensors, const TimedSettings& settings);

  void forward() const { current_->forward(); }    // for a backward that follows, or for its own sake
  void backward() const { current_->backward(); }  // wants an earlier forward()

  // Whether calls have a workspace of the caller's; from now on they take it, or one of the library's pool instead.
  bool has_workspace() const { return workspace_.buffer().data != nullptr; }
  void use_pool(bool wanted) { current_ = wanted ? &pooled_ : &call_; }

  // Counted while the calls ran; nothing where it cannot be known.
  std::optional<std::int64_t> workspace_bytes() const;
  std::optional<std::int64_t> saved_bytes() const;

 private:
  DeviceKind device_;
  bool foreign_;
  OwnedMemory saved_, workspace_;
  verification::Call call_, pooled_;
  const verification::Call* current_ = &call_;
};

bool is_foreign(const std::string& implementation);  // ./lib.so:symbol

}  // namespace fovea::program
