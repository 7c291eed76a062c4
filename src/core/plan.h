// An implementation answers a problem with a refusal, or with a plan that every run of the problem takes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/tensor.h"
#include "fovea/threads.h"

namespace fovea {
struct LayerPart;
}

namespace fovea::core {

// Everything that a run needs besides its tensors. Immutable; shared by the calls of all threads.
struct Plan {
  virtual ~Plan() = default;
  virtual std::string line() const = 0;  // the problem line, for refusals

  std::string_view call;  // the public call that runs it: attention_forward
  Device device{};
  std::int64_t workspace_bytes = 0;
  std::int64_t saved_bytes = 0;         // saved state that forward keeps for backward
  double seconds = 0;                   // predicted; 0: no prediction
  std::string tiles;                    // how the problem is tiled, one line for `explain`
  std::vector<std::string_view> kinds;  // of its implementation's plan_kinds
};

struct Prepared {
  std::shared_ptr<const Plan> plan = nullptr;  // null: refused, or taken where the implementation is available
  std::string refusal = {};
};

// The options that a backend needs while it runs. Validated; the workspace is as large as the plan says.
struct RunContext {
  void* workspace = nullptr;
  bool library_workspace = false;  // the implementation allocated it for this call
  bool placement_checked = false;  // memory and stream are known to belong to the plan's device
  int threads = 1;                 // on the host
  const ExternalThreadPool* thread_pool = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  void* stream = nullptr;
  const std::function<void(const LayerPart&)>* watch = nullptr;  // of a layer: told before each part; null: nobody
};

}  // namespace fovea::core
