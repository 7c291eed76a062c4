// What an implementation makes of a problem: a refusal, or a plan that every run of the problem takes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fovea/tensor.h"
#include "fovea/threads.h"

namespace fovea::core {

// All that a run needs to know beside its tensors. Made once, never changed, shared by the calls of all threads.
struct Plan {
  virtual ~Plan() = default;
  virtual std::string line() const = 0;  // the problem's line, for refusals

  std::string_view call;  // that runs it: attention_forward
  Device device{};
  std::int64_t workspace_bytes = 0;
  std::int64_t saved_bytes = 0;  // of the state that forward keeps for backward
  double seconds = 0;            // predicted; 0: no prediction
  std::string tiles;             // how the problem is tiled, one line for `explain`
};

struct Prepared {
  std::shared_ptr<const Plan> plan = nullptr;  // null: refused
  std::string refusal = {};
};

// Everything of the options that a backend needs while it runs. Validated; the workspace is as large as planned.
struct RunContext {
  void* workspace = nullptr;
  int threads = 1;  // of the host
  const ExternalThreadPool* thread_pool = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  void* stream = nullptr;
};

}  // namespace fovea::core
