// The environment variables that the library reads. It copies them while it is loaded, because getenv races with a
// program's setenv.
#pragma once

#include <string_view>

namespace fovea::core {

// The value of a variable of docs/environment.md; "" if it was not set.
std::string_view environment(std::string_view name);

}  // namespace fovea::core
