// What is asked of an array that Python hands over, whichever framework it is of.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "fovea/tensor.h"

namespace fovea::python {

namespace nb = nanobind;

struct Request {
  const char* name;  // of the parameter
  std::size_t dims;
  bool written;
};

[[noreturn]] void refuse_value(const Request& request, const std::string& problem);
[[noreturn]] void refuse_read_only(const Request& request);
[[noreturn]] void refuse_array(const Request& request, nb::handle object);  // is none, or has another type of elements

void check_dims(const Request& request, nb::handle object, std::size_t dims);

// Its memory as a view, after all checks.
MutableTensorView view_of(const Request& request, nb::handle object, const nb::dlpack::dltensor& tensor);

}  // namespace fovea::python
