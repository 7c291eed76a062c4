// The environment variables that the library reads, as they were when it was loaded: getenv beside a program's setenv
// crashes.
#pragma once

#include <string_view>

namespace fovea::core {

// The value of a variable of docs/environment.md; "" where it was not set.
std::string_view environment(std::string_view name);

}  // namespace fovea::core
