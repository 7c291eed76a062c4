// The functions of the module.
#pragma once

#include <nanobind/nanobind.h>

namespace fovea::python {

void add_attention(nanobind::module_& module);

}  // namespace fovea::python
