// Python handles signals on its main thread only, and only while that thread holds the GIL.
#include "interruptible.h"

#include <nanobind/nanobind.h>

#include <chrono>
#include <exception>
#include <future>

namespace fovea::python {
namespace {

namespace nb = nanobind;

constexpr std::chrono::milliseconds kBetweenLooks{20};

bool ends(const std::future<void>& running) {
  const nb::gil_scoped_release released;
  return running.wait_for(kBetweenLooks) == std::future_status::ready;
}

}  // namespace

void run_interruptible(bool is_long, const std::function<void(const std::atomic<bool>* cancel)>& call) {
  if (!is_long) {
    const nb::gil_scoped_release released;
    return call(nullptr);
  }
  std::atomic<bool> cancel = false;
  std::future<void> running = std::async(std::launch::async, [&] { call(&cancel); });
  while (!ends(running)) {
    if (PyErr_CheckSignals() == 0) continue;
    cancel = true;
    nb::python_error interrupt;
    while (!ends(running)) {
    }
    throw interrupt;
  }
  running.get();
}

}  // namespace fovea::python
