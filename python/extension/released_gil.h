// A scope without the GIL that is safe while the interpreter ends.
#pragma once

#include <nanobind/nanobind.h>

namespace fovea::python {

// CPython 3.13 and older end a thread that asks for the GIL while the interpreter ends. Within C++ that ends the
// process by std::terminate. Here such a thread sleeps until the process has ended, as with CPython 3.14.
class ReleasedGil {
 public:
  ReleasedGil();
  ~ReleasedGil();
  ReleasedGil(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_;
};

// Whether this thread will not get the GIL again. A call is to be cancelled then.
bool interpreter_ends();

// Registers what the interpreter calls when it ends: it waits for threads without the GIL.
void watch_interpreter(nanobind::module_& module);

}  // namespace fovea::python
