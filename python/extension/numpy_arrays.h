// Arrays of NumPy as views.
#pragma once

#include "array_checks.h"

namespace fovea::python {

bool is_numpy(nb::handle type);  // a type whose objects are arrays of NumPy, or of a subclass
MutableTensorView view_of_numpy(nb::handle array, const Request& request);
bool is_named_bf16(nb::handle array);  // by its dtype: NumPy has none of its own, but the package ml_dtypes

}  // namespace fovea::python
