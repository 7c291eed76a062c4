// The arguments of a call beside its arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "arrays.h"
#include "fovea/attention.h"

namespace fovea::python {

// As fovea/calls.py hands them over: (causal, window, align, scale, layout, implementation, threads, and the address of
// the stream, or None for the framework's current stream).
using Words = nb::tuple;

struct Options {
  AttentionOptions attention;  // `implementation` points into this object
  Layout layout = Layout::bhld;
  std::string implementation;
  bool on_current_stream = false;  // of the framework, which then tells it for CUDA: `attention` has none

  // Raises TypeError or ValueError that names the parameter, the value and what is accepted.
  explicit Options(const Words& words);
  Options(const Options&) = delete;

  // Raises ValueError for a mask without `align` on sequences of unequal lengths.
  void check_alignment(std::int64_t queries, std::int64_t keys) const;
};

}  // namespace fovea::python
