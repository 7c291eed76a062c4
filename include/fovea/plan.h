// A plan that the caller keeps: the implementation chosen for one problem, and everything that its runs need besides
// tensors. `prepare` of attention.h, linear.h or layers.h makes one. A call that gets it in its options chooses
// nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "fovea/export.h"

namespace fovea {

namespace core {
struct Plan;
}

// Immutable and cheap to copy; any number of threads may use it at once. It is valid in the process that prepared it.
class FOVEA_API Plan {
 public:
  // An empty plan, which calls refuse.
  Plan() = default;
  // For the library: `choice` and `plan` are its own.
  Plan(std::string_view implementation, std::shared_ptr<const void> choice, const core::Plan& plan);

  std::string_view implementation() const { return implementation_; }  // such as cpu.avx512; empty of an empty plan
  std::int64_t workspace_bytes() const;
  std::int64_t saved_bytes() const;  // saved state that forward keeps for backward
  double predicted_seconds() const;  // 0: no prediction

  const core::Plan* held() const { return plan_; }  // for the library
  const std::shared_ptr<const void>& choice() const { return choice_; }

 private:
  std::string_view implementation_;
  std::shared_ptr<const void> choice_;  // keeps `plan_` alive
  const core::Plan* plan_ = nullptr;
};

}  // namespace fovea
