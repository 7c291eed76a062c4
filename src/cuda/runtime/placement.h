// Are the tensors and the stream where the problem says? Asked before anything is launched.
#pragma once

#include <initializer_list>
#include <string_view>

#include "fovea/attention.h"

namespace fovea::cuda {

// Memory that a call touches; null if it does not.
struct Placed {
  std::string_view name;
  const void* data;
};

// Nothing is read from an empty tensor, wherever it points.
template <class Pointer>
Placed placed(std::string_view name, const BasicTensorView<Pointer>& t) {
  const bool empty = t.sizes[0] == 0 || t.sizes[1] == 0 || t.sizes[2] == 0 || t.sizes[3] == 0;
  return {name, empty ? nullptr : t.data};
}

// Throws Error(invalid_argument) if the stream belongs to another device than the problem, or if memory is not
// reachable from the problem's.
void check_placements(const AttentionProblem& problem, void* stream, std::initializer_list<Placed> memory);

// Throws Error(invalid_argument) if the stream belongs to another device.
void check_stream(void* stream, const AttentionProblem& problem);

}  // namespace fovea::cuda
