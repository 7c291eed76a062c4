// A table of fingerprints, by the saved state's address.
#include "baselines/cuda/saved_states.h"

#include <map>
#include <mutex>

#include "baselines/saved_state.h"
#include "core/never_destroyed.h"

namespace fovea::cuda::baselines {
namespace {

std::mutex mutex;

std::map<const void*, std::uint64_t>& states() {
  static auto& one = core::never_destroyed<std::map<const void*, std::uint64_t>>();
  return one;
}

}  // namespace

void forget_saved(const Buffer& saved) {
  const std::lock_guard lock(mutex);
  states().erase(saved.data);
}

void remember_saved(const AttentionProblem& problem, std::string_view implementation, const Buffer& saved) {
  const std::lock_guard lock(mutex);
  states()[saved.data] = fovea::baselines::fingerprint_of(problem, implementation);
}

void check_saved(const AttentionProblem& problem, std::string_view implementation, const Buffer& saved) {
  const std::lock_guard lock(mutex);
  const auto found = states().find(saved.data);
  if (found != states().end() && found->second == fovea::baselines::fingerprint_of(problem, implementation)) return;
  fovea::baselines::refuse_saved(problem, implementation, found != states().end());
}

}  // namespace fovea::cuda::baselines
