// Objects that are constructed at first use and never destroyed. While the process exits, destructors of the program
// may still call the library, and its worker threads may still wait on these objects.
#pragma once

#include <utility>

namespace fovea::core {

// Initialises a static reference inside a function: `static auto& table = never_destroyed<Table>(...)`.
template <class T, class... Arguments>
T& never_destroyed(Arguments&&... arguments) {
  return *new T(std::forward<Arguments>(arguments)...);
}

}  // namespace fovea::core
