// Errors of the library as exceptions of the package.
#pragma once

namespace fovea::python {

// From now on a fovea::Error that a function throws becomes the exception that fovea/errors.py makes of it.
void translate_errors();

}  // namespace fovea::python
