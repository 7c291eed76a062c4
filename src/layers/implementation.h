// A layer as an operation: one implementation per kind of device, which composes parts.
#pragma once

#include <string>
#include <string_view>

#include "core/implementation.h"
#include "layers/plan.h"

namespace fovea::layers {

// What the templates of src/core need to know.
struct Types {
  using Problem = Request;
  using ForwardTensors = LayerForwardTensors;
  using BackwardTensors = LayerBackwardTensors;
  static std::string line(const Request& request);
  static std::size_t hash(const Request& request);
  static bool asks_reproducible(const Request&) { return false; }  // attention's choice asks for it
  static core::ImplementationList<Types>& list();
  static std::string_view requested(std::string_view name) { return name; }
};

using Implementation = core::Implementation<Types>;

// Makes a plan, for any kind of device.
core::Prepared prepare(const Request& request, int variant);

}  // namespace fovea::layers
