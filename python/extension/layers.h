// Attention layers on arrays of Python.
#pragma once

#include <nanobind/nanobind.h>

namespace fovea::python {

void add_layers(nanobind::module_& module);

}  // namespace fovea::python
