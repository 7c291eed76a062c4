// Arrays of any Python framework as tensor views. Nothing is copied.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstdint>
#include <string>

#include "fovea/tensor.h"

namespace fovea::python {

namespace nb = nanobind;

// Order of an array's dimensions: batch, heads, length, columns; or length before heads.
enum class Layout : std::uint8_t { bhld, blhd };

// An array while a call uses it. `view` reads or writes the array's own memory.
struct Array {
  nb::object object;
  nb::ndarray<nb::ro> held;  // of a capsule; else empty, and `object` keeps the memory alive
  MutableTensorView view;
};

// Raises TypeError or ValueError that names the parameter, the value and what is accepted.
Array input_array(nb::handle object, const char* name, Layout layout);
Array output_array(nb::handle object, const char* name, Layout layout);
// log-sum-exp and delta: [batch, heads, length] in every layout.
Array input_rows(nb::handle object, const char* name);
Array output_rows(nb::handle object, const char* name);

// Shapes as Python has them.
nb::tuple shape_of(const Sizes& sizes, Layout layout);
nb::tuple shape_of_rows(const Sizes& sizes);

}  // namespace fovea::python
