// Carries exceptions and cancellation out of the threads.
#include "cpu/tasks.h"

#include <atomic>
#include <exception>

#include "core/check.h"
#include "cpu/threads.h"

namespace fovea::cpu {

void run_cancellable(const core::RunContext& context, int workers, std::int64_t count,
                     const std::function<void(std::int64_t, int)>& task) {
  const auto cancelled = [&context] { return context.cancel != nullptr && context.cancel->load(); };
  std::atomic<bool> failed = false;
  std::exception_ptr error = nullptr;  // the first one
  for_each_item(context.thread_pool, workers, count, [&](std::int64_t index, int worker) {
    if (cancelled()) return false;
    try {
      task(index, worker);
      return true;
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
      return false;
    }
  });
  if (error != nullptr) std::rethrow_exception(error);
  if (cancelled()) core::fail({.status = Status::cancelled, .problem = "the cancel flag was raised"});
}

}  // namespace fovea::cpu
