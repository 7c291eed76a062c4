// Python handles signals on its main thread only, and only while that thread holds the GIL.
#include "interruptible.h"

#include <nanobind/nanobind.h>

#include <chrono>
#include <exception>
#include <future>
#include <system_error>

#include "released_gil.h"

namespace fovea::python {
namespace {

namespace nb = nanobind;

constexpr std::chrono::milliseconds kBetweenLooks{20};

bool ends(const std::future<void>& running, std::atomic<bool>& cancel) {
  const ReleasedGil released;
  const bool ended = running.wait_for(kBetweenLooks) == std::future_status::ready;
  if (!ended && interpreter_ends()) {
    cancel = true;
    running.wait();
  }
  return ended;
}

// Not valid where the system has no thread to give.
std::future<void> started(const std::function<void()>& call) {
  try {
    return std::async(std::launch::async, call);
  } catch (const std::system_error&) {
    return {};
  }
}

}  // namespace

void run_interruptible(bool is_long, const std::function<void(const std::atomic<bool>* cancel)>& call) {
  std::atomic<bool> cancel = false;
  std::future<void> running;
  if (is_long) running = started([&] { call(&cancel); });
  if (!running.valid()) {
    const ReleasedGil released;
    return call(nullptr);
  }
  while (!ends(running, cancel)) {
    if (PyErr_CheckSignals() == 0) continue;
    cancel = true;
    nb::python_error interrupt;
    while (!ends(running, cancel)) {
    }
    throw interrupt;
  }
  running.get();
}

}  // namespace fovea::python
