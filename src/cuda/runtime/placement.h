// Checks that the memory and the stream of a call belong to the problem's device, before anything is launched.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/plan.h"
#include "fovea/attention.h"

namespace fovea::cuda {

// The call being checked, as messages name it.
struct CallSite {
  std::string_view call;
  int device = 0;
  std::function<std::string()> line = [] { return std::string(); };  // the problem line; only refusals ask for it
};
CallSite site_of(const core::Plan& plan);  // valid while the plan lives

struct Placed {
  std::string_view name;
  const void* data;  // null: nothing is touched
};

// Memory to check. An empty tensor may point anywhere: nothing is read from it.
template <class Pointer>
Placed placed(std::string_view name, const BasicTensorView<Pointer>& t) {
  const bool empty = t.sizes[0] == 0 || t.sizes[1] == 0 || t.sizes[2] == 0 || t.sizes[3] == 0;
  return {name, empty ? nullptr : t.data};
}

// The caller's workspace, or nothing if the library allocated it: the driver does not know the memory of a graph before
// the graph runs.
inline Placed callers_workspace(const core::RunContext& context) {
  return {"workspace", context.library_workspace ? nullptr : context.workspace};
}

// Throw Error(invalid_argument) if the stream belongs to another device than the plan. Likewise if the plan's device
// cannot access a tensor, the saved state or the caller's workspace. Null pointers and empty tensors pass. A part of a
// larger call checks nothing: its context says that the call has checked all memory.
void check_placements(const core::Plan& plan, const ForwardTensors& t, const core::RunContext& context);
void check_placements(const core::Plan& plan, const BackwardTensors& t, const core::RunContext& context);

// Throws Error(invalid_argument) if the stream belongs to another device.
void check_stream(void* stream, const CallSite& site);

// Throws Error(invalid_argument) if the call's device cannot access the memory. Consecutive entries often share an
// allocation, as tensors of PyTorch do; it is then looked up once.
void check_memory(std::span<const Placed> memory, const CallSite& site);

}  // namespace fovea::cuda
