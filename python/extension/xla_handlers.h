// Attention as functions that XLA calls.
#pragma once

#include <nanobind/nanobind.h>

namespace fovea::python {

// Adds xla_handlers(): a list of (target, platform, capsule of the function), as jax.ffi.register_ffi_target wants
// them.
void add_xla_handlers(nanobind::module_& module);

}  // namespace fovea::python
