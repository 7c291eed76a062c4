// The module fovea._core. fovea/calls.py holds its public functions.
#include <nanobind/nanobind.h>

#include "attention.h"
#include "errors.h"
#include "fovea/threads.h"
#include "fovea/version.h"
#include "layers.h"
#include "released_gil.h"
#include "xla_handlers.h"

NB_MODULE(_core, module) {
  module.attr("version") = FOVEA_VERSION_STRING;
  module.def("default_threads", &fovea::default_threads);
  fovea::python::translate_errors();
  fovea::python::watch_interpreter(module);
  fovea::python::add_attention(module);
  fovea::python::add_xla_handlers(module);
  fovea::python::add_layers(module);
}
