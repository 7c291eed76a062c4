// The calls that a worker times: a case on an implementation of the library, or on a foreign C function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "program/worker/owned_memory.h"
#include "verification/operation.h"

namespace fovea::program {

// Settings of the calls that are not in the case.
struct TimedSettings {
  std::string implementation;  // or ./lib.so:symbol
  int threads = 1;
  void* stream = nullptr;    // on a GPU
  bool may_allocate = true;  // false: calls may be captured in a graph
  bool saves = true;         // false: forward saves no state for backward
};

class TimedCall {
 public:
  // The tensors must stay in place while this exists.
  TimedCall(const verification::Case& c, const verification::TensorSet& tensors, const TimedSettings& settings);

  void forward() const { current_->forward(); }
  void backward() const { current_->backward(); }  // requires an earlier forward()

  // Before the passes of a run and behind it, not timed (verification::Call).
  bool has_begin() const { return static_cast<bool>(call_.begin); }
  void begin() const {
    if (current_->begin) current_->begin();
  }
  void end() const {
    if (current_->end) current_->end();
  }

  // Whether calls have a caller's workspace; and a switch between it and the library's pool for later calls.
  bool has_workspace() const { return workspace_.buffer().data != nullptr; }
  void use_pool(bool wanted) { current_ = wanted ? &pooled_ : &call_; }

  // Counted while the calls ran; nullopt if not known.
  std::optional<std::int64_t> workspace_bytes() const;
  std::optional<std::int64_t> saved_bytes() const;

 private:
  DeviceKind device_;
  bool foreign_;
  OwnedMemory saved_, workspace_;
  verification::Call call_, pooled_;
  const verification::Call* current_ = &call_;
};

bool is_foreign(const std::string& implementation);  // ./lib.so:symbol, lib.so.1:symbol

}  // namespace fovea::program
