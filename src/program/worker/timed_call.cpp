// Allocates the plan's memory and prepares calls that use it.
#include "program/worker/timed_call.h"

#include "core/check.h"
#include "core/memory.h"

namespace fovea::program {

using verification::CallSettings;
using verification::Case;
using verification::CasePlan;

bool is_foreign(const std::string& implementation) {
  const std::size_t colon = implementation.rfind(':');
  if (colon == std::string::npos) return false;
  std::string file = implementation.substr(0, colon);
  while (!file.empty() && (file.back() == '.' || (file.back() >= '0' && file.back() <= '9'))) file.pop_back();
  return file.ends_with(".so");
}

TimedCall::TimedCall(const Case& c, const verification::TensorSet& tensors, const TimedSettings& settings)
    : device_(c.device()), foreign_(is_foreign(settings.implementation)) {
  CallSettings call{.implementation = settings.implementation, .threads = settings.threads, .stream = settings.stream};
  if (foreign_) {
    call_ = c.operation->prepare_foreign(c, tensors, call);
    return;
  }
  // Backward always runs after a forward, even if only backward is timed.
  const Case both = c.backwards() ? c.with("pass", "e2e") : c;
  const CasePlan plan = c.operation->plan(settings.saves ? both : without_saved_state(both), settings.implementation);
  if (std::string reason = plan.refusal(); !reason.empty())
    core::fail({.status = Status::unsupported, .problem = std::move(reason)});
  core::release_cached_memory();
  saved_ = OwnedMemory(device_, plan.saved_bytes);
  call.saved = saved_.buffer();
  if (!settings.may_allocate) {
    workspace_ = OwnedMemory(device_, plan.workspace_bytes);
    pooled_ = c.operation->prepare(c, tensors, call);
    call.workspace = workspace_.buffer();
  }
  call_ = c.operation->prepare(c, tensors, call);
  core::reset_memory_peak();
  if (device_ == DeviceKind::cuda) cuda::reset_workspace_peak();
}

std::optional<std::int64_t> TimedCall::workspace_bytes() const {
  if (foreign_) return std::nullopt;
  if (has_workspace()) return workspace_.buffer().bytes;
  return device_ == DeviceKind::cuda ? cuda::workspace_peak() : core::memory_count().peak;
}

std::optional<std::int64_t> TimedCall::saved_bytes() const {
  if (foreign_) return std::nullopt;
  return saved_.buffer().bytes;
}

}  // namespace fovea::program
