// Tensors of PyTorch as views.
#pragma once

#include "array_checks.h"

namespace fovea::python {

bool is_torch(nb::handle type);  // a type whose objects are tensors of PyTorch
MutableTensorView view_of_torch(nb::handle tensor, const Request& request);

}  // namespace fovea::python
