// Bytes for people.
#pragma once

#include <cstdint>
#include <string>

namespace fovea::core {

// "24 GiB", "8.5 MiB", "512 B": two digits or more.
std::string binary_size(std::int64_t bytes);

}  // namespace fovea::core
