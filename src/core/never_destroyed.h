// Objects that are made at their first use and never destroyed: destructors may call the library while the process
// exits, and its worker threads may sleep in it until then.
#pragma once

#include <utility>

namespace fovea::core {

// Initialises a static reference inside a function: `static auto& table = never_destroyed<Table>(...)`.
template <class T, class... Arguments>
T& never_destroyed(Arguments&&... arguments) {
  return *new T(std::forward<Arguments>(arguments)...);
}

}  // namespace fovea::core
