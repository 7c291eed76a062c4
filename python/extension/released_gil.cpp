// `atexit` runs before the interpreter takes the GIL from others for ever. So a thread that still gets it is counted in
// `away` until it has it.
#include "released_gil.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace fovea::python {
namespace {

using namespace std::chrono_literals;

std::atomic<int> away = 0;  // threads without the GIL
std::atomic<bool> ending = false;
std::atomic<std::thread::id> ended_by;

[[noreturn]] void sleep_for_ever() {
  --away;
  while (true) std::this_thread::sleep_for(1h);
}

void end() {
  constexpr int kPatience = 2000;  // milliseconds; a cancelled call ends within some
  ended_by = std::this_thread::get_id();
  ending = true;
  const nanobind::gil_scoped_release released;
  for (int i = 0; i < kPatience && away > 0; ++i) std::this_thread::sleep_for(1ms);
}

}  // namespace

bool interpreter_ends() { return ending && ended_by.load() != std::this_thread::get_id(); }

ReleasedGil::ReleasedGil() : state_(PyEval_SaveThread()) {
  ++away;
  if (interpreter_ends()) sleep_for_ever();
}

ReleasedGil::~ReleasedGil() {
  if (interpreter_ends()) sleep_for_ever();
  PyEval_RestoreThread(state_);
  --away;
}

void watch_interpreter(nanobind::module_& module) {
  namespace nb = nanobind;
  module.def("end", &end);
  nb::module_::import_("atexit").attr("register")(module.attr("end"));
  module.def("forget_other_threads", [] { away = 0; });  // a forked process has none
  nb::module_::import_("os").attr("register_at_fork")(nb::arg("after_in_child") = module.attr("forget_other_threads"));
}

}  // namespace fovea::python
