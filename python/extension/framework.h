// What a call asks of the framework of its arrays: fovea/frameworks.py.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "fovea/attention.h"

namespace fovea::python {

namespace nb = nanobind;

struct Framework {
  nb::handle object;

  // Contiguous.
  nb::object empty_like(nb::handle like) const { return object.attr("empty_like")(like); }
  nb::object empty(nb::handle like, const nb::tuple& shape) const { return object.attr("empty")(like, shape); }
  nb::object empty_fp32(nb::handle like, const nb::tuple& shape) const {
    return object.attr("empty_fp32")(like, shape);
  }
  // Of the device of `like`, which is of CUDA.
  void* current_stream(nb::handle like) const {
    return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(object.attr("current_stream")(like)));
  }
  // Memory on the device of `like`; `buffer` is where it lies. Of 0 bytes it is None.
  nb::object empty_bytes(nb::handle like, std::int64_t bytes, Buffer& buffer) const {
    if (bytes == 0) return nb::none();
    nb::object memory = object.attr("empty_bytes")(like, bytes);
    buffer = {reinterpret_cast<void*>(nb::cast<std::uintptr_t>(object.attr("address")(memory))), bytes};
    return memory;
  }
};

}  // namespace fovea::python
