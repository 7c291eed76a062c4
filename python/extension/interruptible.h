// Calls that Ctrl-C can end.
#pragma once

#include <atomic>
#include <functional>

namespace fovea::python {

// Runs `call` without the GIL. A long one runs on a thread of its own, while this thread looks for signals: after
// Ctrl-C it raises the flag, waits for the call, and throws KeyboardInterrupt. A short one gets a null flag.
void run_interruptible(bool is_long, const std::function<void(const std::atomic<bool>* cancel)>& call);

}  // namespace fovea::python
